// What the command lines of this project's programs share beyond CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hyperloop/metrics/server.h"

namespace hyperloop {

// Adds --help-json, which prints what --help says for other programs to read. Manual pages,
// completions and configuration files are made of it (scripts/manuals). Called last.
void AddHelpJson(CLI::App& app);

// Adds --config FILE: what the command line says counts more than what the file says. The file's
// unknown words are refused.
void AddConfig(CLI::App& app);

// Adds --log-level, which takes the names of kLogLevelNames.
void AddLogLevel(CLI::App& app, std::string* level);

// Adds --metrics and --metrics-open. Without --metrics the address stays empty.
void AddMetrics(CLI::App& app, metrics::ServerOptions* options);

// A check for CLI11: accepts the number of a processor of this machine, or one of `words`.
CLI::Validator Processor(std::vector<std::string> words = {});

// Parses, then calls `check`, which throws a CLI::ParseError for options that do not fit together.
// Returns the status to exit with: 0 after --help and its like, 2 if the command line is wrong,
// with the reason on standard error, which names what a mistyped word may have meant. None: the
// program goes on.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv,
                                    const std::function<void()>& check = {});

}  // namespace hyperloop
