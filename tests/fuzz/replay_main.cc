// usage: fuzz_replay NAME [--rounds N] [--write DIR] [FILE…]
//
// Runs a fuzz target without libFuzzer, the same way every time: over FILEs if any are given (a
// finding to look at), else over each seed and N mutations of it (default 300). --write DIR only
// writes the seeds there, as a corpus to start from. Exit status 0 if nothing ended the process. An
// input that breaks a rule is kept in the file fuzz_NAME.finding of the working directory.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>

#include "fuzz/fuzz.h"

namespace {

using hyperloop::fuzz::FuzzTarget;
using hyperloop::fuzz::Input;
using hyperloop::fuzz::Reader;

constexpr uint8_t kTelling[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0x10, 0x40};

Input Mutate(Input input, const std::vector<Input>& seeds, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); };
  for (size_t changes = 1 + below(8); changes > 0; --changes) {
    switch (input.empty() ? 4 : below(7)) {
      case 0:
        input[below(input.size())] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        input[below(input.size())] = static_cast<uint8_t>(random());
        break;
      case 2:
        input[below(input.size())] = kTelling[below(std::size(kTelling))];
        break;
      case 3:
        input.resize(below(input.size() + 1));
        break;
      case 4:
        for (size_t n = 1 + below(16); n > 0; --n)
          input.insert(input.begin() + static_cast<ptrdiff_t>(below(input.size() + 1)),
                       static_cast<uint8_t>(random()));
        break;
      case 5: {
        const size_t from = below(input.size());
        const size_t n = 1 + below(input.size() - from);
        input.erase(input.begin() + static_cast<ptrdiff_t>(from),
                    input.begin() + static_cast<ptrdiff_t>(from + n));
        break;
      }
      default: {
        const Input& other = seeds[below(seeds.size())];
        const size_t cut = below(other.size());
        input.insert(input.end(), other.begin() + static_cast<ptrdiff_t>(cut), other.end());
      }
    }
  }
  return input;
}

const FuzzTarget* target = nullptr;
const Input* running = nullptr;

void Keep(int signal) {
  std::signal(signal, SIG_DFL);
  char path[256];
  std::snprintf(path, sizeof path, "fuzz_%s.finding", target->name);
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd >= 0 && running != nullptr) {
    [[maybe_unused]] const ssize_t n = write(fd, running->data(), running->size());
    std::fprintf(stderr, "the input is in %s\n", path);
  }
  raise(signal);
}

void Run(const Input& input) {
  running = &input;
  Reader in(input.data(), input.size());
  target->run(in);
}

Input Load(const char* path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "%s: cannot read it\n", path);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

int WriteSeeds(const std::vector<Input>& seeds, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream out(folder / ("seed-" + std::to_string(i)), std::ios::binary);
    out.write(reinterpret_cast<const char*>(seeds[i].data()),
              static_cast<std::streamsize>(seeds[i].size()));
    if (!out.flush()) {
      std::fprintf(stderr, "%s: cannot write seed %zu\n", folder.c_str(), i);
      return 1;
    }
  }
  std::printf("%zu seeds in %s\n", seeds.size(), folder.c_str());
  return 0;
}

int Usage(const char* program) {
  std::fprintf(stderr,
               "usage: %s NAME [--rounds N] [--write DIR] [FILE…]\nNAME is one of:", program);
  for (const FuzzTarget* each : FuzzTarget::All()) std::fprintf(stderr, " %s", each->name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  for (const FuzzTarget* each : FuzzTarget::All())
    if (argc > 1 && std::string_view(argv[1]) == each->name) target = each;
  if (target == nullptr) return Usage(argv[0]);
  std::signal(SIGABRT, Keep);
  size_t rounds = 300;
  const std::vector<Input> seeds = target->seeds();
  bool files = false;
  for (int i = 2; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--write" && i + 1 < argc) return WriteSeeds(seeds, argv[i + 1]);
    if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument.starts_with("--")) {
      return Usage(argv[0]);
    } else {
      files = true;
      Run(Load(argv[i]));
      std::printf("%s: passed\n", argv[i]);
    }
  }
  if (files) return 0;
  std::mt19937_64 random(20261121);
  size_t runs = 0;
  for (const Input& seed : seeds) {
    Run(seed);
    for (size_t i = 0; i < rounds; ++i) Run(Mutate(seed, seeds, random));
    runs += 1 + rounds;
  }
  std::printf("%zu seeds, %zu inputs in all\n", seeds.size(), runs);
  return 0;
}
