#include "primitives/case.h"

#include <string>

namespace hyperloop::bench {

Result<Primitive> ParsePrimitive(std::string_view name) {
  for (const Primitive primitive : {Primitive::kWrite, Primitive::kCas, Primitive::kMemCopy,
                                    Primitive::kFlush, Primitive::kAppend}) {
    if (name == PrimitiveName(primitive)) return primitive;
  }
  return InvalidArgument("no primitive '" + std::string(name) +
                         "'; there are gwrite, gcas, gmemcpy, gflush, append and all");
}

std::string_view PrimitiveName(Primitive primitive) {
  switch (primitive) {
    case Primitive::kWrite:
      return "gwrite";
    case Primitive::kCas:
      return "gcas";
    case Primitive::kMemCopy:
      return "gmemcpy";
    case Primitive::kFlush:
      return "gflush";
    case Primitive::kAppend:
      break;
  }
  return "append";
}

bool Sized(Primitive primitive) {
  return primitive != Primitive::kCas && primitive != Primitive::kFlush;
}

}  // namespace hyperloop::bench
