// The drop-in: any host starts it in place of its llama-server. It asks srhpm_plugin.dropin what to run
// and becomes that; whatever goes wrong, it becomes the host's own server with untouched arguments and
// environment. It links nothing of ours or upstream's and is small enough to be read in one go.

#include "answer.h"
#include "note.h"
#include "system.h"

#include <cstdlib>
#include <cstring>

namespace dropin {
namespace {

const int    default_timeout_ms = 20 * 1000;
const size_t answer_limit       = 4u << 20;

// What a host's libraries or a user's settings could mix into the interpreter. It gets the values under
// another name, as they say what the host is about to use.
const char * const kept_from_python[] = { "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "DYLD_LIBRARY_PATH",
                                          "DYLD_INSERT_LIBRARIES", "DYLD_FRAMEWORK_PATH" };
// The interpreter is run with -I and ignores its own variables; programs that it starts would not.
const char * const python_variables[] = { "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP" };

bool starts_with(const std::string & text, const char * start) {
    return text.compare(0, std::strlen(start), start) == 0;
}

std::string flag_of(const std::string & arg) {
    std::string flag = arg.substr(0, arg.find('='));
    if (starts_with(flag, "--")) {
        for (char & c : flag) {
            c = c == '_' ? '-' : c; // as upstream's parser does
        }
    }
    return flag;
}

bool is_one_of(const std::string & text, const strings & list) {
    for (const auto & entry : list) {
        if (text == entry) {
            return true;
        }
    }
    return false;
}

// A start that serves a model file, or a router where the note says so. Questions to the program and
// downloads are none of ours.
bool serves(const strings & args, bool router) {
    static const strings questions = { "-h",  "--help",         "--usage",        "--version",
                                       "-cl", "--cache-list",   "--list-devices", "--completion-bash",
                                       "--license" };
    static const strings names     = { "-m", "--model" };
    bool                 named     = router || variable("LLAMA_ARG_MODEL").has_value();
    for (const auto & arg : args) {
        const std::string flag = flag_of(arg);
        if (is_one_of(flag, questions)) {
            return false;
        }
        named = named || is_one_of(flag, names);
    }
    return named;
}

bool switched_off() {
    const auto value = variable("SRHPM_DROPIN");
    return value && (*value == "off" || *value == "0");
}

// Ours started in place of another would go round in circles.
bool is_dropin(const std::string & program, const std::string & own) {
    return is_file(program + note_suffix) || is_file(resolved(program) + note_suffix) || same_program(program, own);
}

int timeout_ms() {
    const auto text  = variable("SRHPM_DROPIN_TIMEOUT_MS"); // for tests
    const int  value = text ? std::atoi(text->c_str()) : 0;
    return value > 0 && value < default_timeout_ms ? value : default_timeout_ms;
}

std::optional<answer> ask(const note & n, const strings & args) {
    env_changes env;
    for (const char * name : kept_from_python) {
        if (const auto value = variable(name)) {
            env.emplace_back(std::string("SRHPM_HOST_") + name, value);
            env.emplace_back(name, std::nullopt);
        }
    }
    for (const char * name : python_variables) {
        env.emplace_back(name, std::nullopt);
    }
    if (!n.home.empty()) {
        env.emplace_back("SRHPM_HOME", n.home);
    }
    const strings python = { "-I", "-m", "srhpm_plugin.dropin", "--note", n.path, "--" };
    const auto    output = output_of(n.python, python, args, env, timeout_ms(), answer_limit);
    return output ? parse_answer(*output, args) : std::nullopt;
}

int run(const std::string & argv0, const strings & args) {
    const strings       places = own_paths(argv0);
    std::optional<note> found;
    for (const auto & place : places) {
        if (!found) {
            found = read_note(place);
        }
    }
    const std::string own = places.empty() ? argv0 : places.front();
    // The name under which an installation keeps the host's server when it can choose one.
    std::string original = found ? found->original : std::string();
    for (const auto & place : places) {
        if (original.empty() && (!found || !found->valid) && is_file(place + ".srhpm-original")) {
            original = place + ".srhpm-original";
        }
    }
    std::string why;
    if (!found) {
        why = "there is no note beside " + own + ": run srhpm-plugin install again";
    } else if (!found->valid) {
        why = found->path + " is damaged: run srhpm-plugin install again";
    }
    const bool usable = !original.empty() && is_file(original) && !is_dropin(original, own);
    // Without a server of the host's even a question needs an answer from ours.
    if (why.empty() && !(usable && (switched_off() || !serves(args, found->router)))) {
        if (const auto told = ask(*found, args)) {
            if (told->program == original && usable && told->env.empty() && told->args == args) {
                return become_untouched(original, args);
            }
            if (!is_dropin(told->program, own)) {
                const int code = become(told->program, told->args, told->env);
                if (code != -1) {
                    return code;
                }
            }
        }
        why = "no plan came: srhpm-plugin doctor says why";
        if (usable) {
            say("srhpm: " + why);
        }
    }
    if (usable) {
        const int code = become_untouched(original, args);
        if (code != -1) {
            return code;
        }
        why = "it cannot be run";
    }
    const std::string what = original.empty() ? "no server of the host's is known" : "no server of the host's at " + original;
    say("srhpm: cannot start a server: " + what + (why.empty() ? "" : ", and " + why));
    return 1;
}

} // namespace
} // namespace dropin

#ifdef _WIN32
namespace dropin {
strings command_line();
}

int main(int, char ** argv) {
    return dropin::run(argv[0] ? argv[0] : "", dropin::command_line());
}
#else
int main(int argc, char ** argv) {
    return dropin::run(argc > 0 ? argv[0] : "", dropin::strings(argv + (argc > 0 ? 1 : 0), argv + argc));
}
#endif
