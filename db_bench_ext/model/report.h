// How the results of a model are printed: lines of a table, or one JSON object a case.
#pragma once

#include <string>
#include <vector>

#include "model/costs.h"
#include "model/figures.h"

namespace hyperloop::model {

std::string TableHead(const std::string& title);
// The case, and below it each of the paper's numbers with the difference of the model's from it.
std::string ToTable(const Line& line, const CaseResult& result);
std::string ToTable(const Quotient& quotient, const std::vector<CaseResult>& results);
// `figure`: its name; empty: none.
std::string ToJson(const std::string& figure, const Line& line, const CaseResult& result);
std::string ToJson(const std::string& figure, const Quotient& quotient,
                   const std::vector<CaseResult>& results);
// All costs, each with its value here and its source.
std::string CostsToTable(const Costs& costs);
std::string CostsToJson(const Costs& costs);

}  // namespace hyperloop::model
