// SR-HPM bench: the command line of bench-kernels.
#pragma once

#include "format.h"

#include <string>
#include <vector>

namespace bench {

struct Options {
    std::vector<ggml_type> types; // all that have a packed form
    std::vector<int>       ms      = {1, 2, 3, 4, 6, 8};
    int64_t                rows    = 4096;
    int64_t                cols    = 4096;
    int                    threads = 1;
    int                    rounds  = 5;
    int64_t                mib     = 0; // weights per engine and pass; 0: several times the cache
    bool                   info    = false; // say what would run, and no more
    bool                   plain   = false; // any type, only in RAM as the file has it, by whatever kernels are on
    bool                   memory  = false; // how fast memory is read, and no products

    // Throws std::runtime_error, in one line, for what makes no sense.
    Options(int argc, char ** argv);
};

// A type's name as model files' readers write it: Q4_K.
std::string type_name(ggml_type type);

} // namespace bench
