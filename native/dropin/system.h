// What the drop-in needs of the system. Strings are the system's own bytes on POSIX, UTF-8 on Windows.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dropin {

using strings = std::vector<std::string>;

// Changes to the environment, in order; without a value the variable is unset.
using env_changes = std::vector<std::pair<std::string, std::optional<std::string>>>;

// Where this program may have been started from, the most certain first.
strings own_paths(const std::string & argv0);

std::optional<std::string> variable(const char * name);

// Content of a small regular file; nothing when it is missing, longer than `limit` or unreadable.
std::optional<std::string> read_file(const std::string & path, size_t limit);

bool        is_file(const std::string & path);
bool        is_absolute(const std::string & path);
std::string folder_of(const std::string & path); // with the separator; empty when there is none

// The path with links resolved; as it is when that fails.
std::string resolved(const std::string & path);

// Both name the same file, or files of equal content.
bool same_program(const std::string & a, const std::string & b);

// Standard output of a program that ended with code 0 within `timeout_ms`; nothing otherwise. It gets
// no standard input and dies with us. `inherited`: the host's arguments, passed on after `args`.
std::optional<std::string> output_of(const std::string & program, const strings & args, const strings & inherited,
                                     const env_changes & env, int timeout_ms, size_t limit);

// Becomes the program, on Windows as its parent: then the exit code is returned. -1: it cannot be run.
int become(const std::string & program, const strings & args, const env_changes & env);

// The same with the arguments and the environment as the host gave them.
int become_untouched(const std::string & program, const strings & args);

void say(const std::string & line); // on standard error

} // namespace dropin
