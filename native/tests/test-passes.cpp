// test-passes MODEL [--kv f16,q8_0] [--fa on,off] [--threads N,N] [--tensors] [--gpu-layers N] FROM...
//
// A pass over M tokens gives each token the logits of a pass over it alone, bit for bit, on a whole
// model. Two contexts decode the same pseudo-random tokens: up to each position FROM (ascending) in
// large batches, alike; then one token by token, the other in passes of 2 to 8 tokens, first all of them
// right, then the later half wrong and dropped again, as after a draft. So for every combination of the
// values given. What both keep for the next token must be the same bytes after every pass.
// The caller sets SRHPM_EXACT=8. Where logits differ, both are done again to tell which tensors do. With
// --tensors those of all passes are compared: rounding activations to 8 bits hides small differences
// from the logits.
// With --gpu-layers so many lie on a stand-in for a GPU (those that SRHPM_GPU_LAYERS names, else the
// last), and it is said how many graphs the GPU computed in a pass over 8 tokens: the scheduler splits the
// model's graph wherever it changes sides.

#include "blame.h"
#include "stand-in-gpu.h"

#include "ggml-backend.h"
#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int LARGE  = 256; // tokens of a batch up to a window
constexpr int MOST   = 8;   // of a pass
constexpr int WINDOW = 64;  // at least the tokens of all passes after a position

struct Setting {
    ggml_type kv;
    bool      flash;
    int       threads;
};

struct Options {
    std::string          model;
    std::vector<Setting> settings;
    bool                 tensors    = false;
    int                  gpu_layers = 0;
    std::vector<int>     from;
};

std::vector<std::string> split(const std::string & list) {
    std::vector<std::string> out(1);
    for (char c : list) {
        if (c == ',') {
            out.emplace_back();
        } else {
            out.back() += c;
        }
    }
    return out;
}

Options parse(int argc, char ** argv) {
    Options     o;
    std::string kv = "f16", fa = "on", threads = "1";
    for (int i = 1; i < argc; ++i) {
        const std::string arg    = argv[i];
        std::string *     option = arg == "--kv" ? &kv : arg == "--fa" ? &fa : arg == "--threads" ? &threads : nullptr;
        if (option && i + 1 < argc) {
            *option = argv[++i];
        } else if (arg == "--gpu-layers" && i + 1 < argc) {
            o.gpu_layers = std::atoi(argv[++i]);
        } else if (arg == "--tensors") {
            o.tensors = true;
        } else if (o.model.empty()) {
            o.model = arg;
        } else {
            o.from.push_back(std::atoi(arg.c_str()));
        }
    }
    for (const auto & k : split(kv)) {
        for (const auto & f : split(fa)) {
            for (const auto & t : split(threads)) {
                const int n = std::atoi(t.c_str());
                if ((k != "f16" && k != "q8_0") || (f != "on" && f != "off") || n < 1) {
                    throw std::runtime_error("no setting " + k + " " + f + " " + t);
                }
                o.settings.push_back({k == "f16" ? GGML_TYPE_F16 : GGML_TYPE_Q8_0, f == "on", n});
            }
        }
    }
    if (o.from.empty()) {
        throw std::runtime_error("no position; see the head of test-passes.cpp");
    }
    return o;
}

class Context {
    llama_context * ctx;
    llama_batch     batch = llama_batch_init(LARGE, 0, 1);
    blame::Pass *   record = nullptr;
    int             vocab;

    static bool on_tensor(ggml_tensor * t, bool ask, void * self) {
        blame::Pass * to = ((Context *) self)->record;
        if (to && !ask) {
            to->add(t);
        }
        return ask ? to != nullptr : true;
    }

  public:
    Context(llama_model * model, const Setting & o, int n_ctx, bool drafts, bool recorded) :
        vocab(llama_vocab_n_tokens(llama_model_get_vocab(model))) {
        llama_context_params p = llama_context_default_params();
        p.n_ctx           = (uint32_t) n_ctx;
        p.n_batch         = LARGE;
        p.n_ubatch        = LARGE;
        p.n_rs_seq        = drafts ? MOST : 0; // states of a recurrent model that can be gone back to
        p.n_threads       = o.threads;
        p.n_threads_batch = o.threads;
        p.flash_attn_type = o.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        p.type_k          = o.kv;
        p.type_v          = o.flash ? o.kv : GGML_TYPE_F16; // quantized values need flash attention
        if (recorded) {
            p.cb_eval           = on_tensor;
            p.cb_eval_user_data = this;
        }
        ctx = llama_init_from_model(model, p);
        if (!ctx) {
            throw std::runtime_error("no context");
        }
    }
    ~Context() {
        llama_batch_free(batch);
        llama_free(ctx);
    }
    Context(const Context &) = delete;
    Context & operator=(const Context &) = delete;

    // Decodes tokens that stand at `at` on; their logits, one after the other, where wanted.
    std::vector<float> decode(const llama_token * tokens, int at, int n, bool logits, blame::Pass * to = nullptr) {
        batch.n_tokens = n;
        for (int i = 0; i < n; ++i) {
            batch.token[i]     = tokens[i];
            batch.pos[i]       = at + i;
            batch.n_seq_id[i]  = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i]    = logits;
        }
        record = to;
        if (llama_decode(ctx, batch) != 0) {
            throw std::runtime_error("cannot decode " + std::to_string(n) + " tokens at " + std::to_string(at));
        }
        record = nullptr;
        std::vector<float> out;
        for (int i = 0; logits && i < n; ++i) {
            const float * row = llama_get_logits_ith(ctx, i);
            out.insert(out.end(), row, row + vocab);
        }
        return out;
    }

    // What there is to go on from: keys and values, recurrent states.
    std::vector<uint8_t> state() {
        std::vector<uint8_t> out(llama_state_seq_get_size(ctx, 0));
        out.resize(llama_state_seq_get_data(ctx, out.data(), out.size(), 0));
        return out;
    }

    void drop_from(int at) {
        if (!llama_memory_seq_rm(llama_get_memory(ctx), 0, at, -1)) {
            throw std::runtime_error("cannot drop tokens from " + std::to_string(at) + " on");
        }
    }
};

struct Walk {
    llama_model *   model;
    const Options & options;
    Setting         setting;
    int             vocab    = llama_vocab_n_tokens(llama_model_get_vocab(model));
    int             compared = 0; // tokens
    int             at       = 0; // position of the pass in hand
    int             graphs   = 0; // that the GPU computed in passes over MOST tokens
    int             counted  = 0; // such passes

    // Walks over all positions. Returns whether all is equal, or stops at the first pass that is not:
    // `at` tells which. The tensors of the pass at `blamed` are compared as well.
    bool run(int blamed = -1) {
        std::mt19937             rng(1);
        std::vector<llama_token> text(options.from.back() + WINDOW);
        std::generate(text.begin(), text.end(), [&] { return (llama_token) (rng() % (uint32_t) vocab); });

        const bool recorded = options.tensors || blamed >= 0;
        Context    single(model, setting, (int) text.size(), false, recorded);
        Context    passes(model, setting, (int) text.size(), true, recorded);
        at = 0;
        for (int from : options.from) {
            while (at < from) {
                const int n = std::min(LARGE, from - at);
                single.decode(&text[at], at, n, false);
                passes.decode(&text[at], at, n, false);
                at += n;
            }
            for (int wrong : {0, 1}) {
                for (int m = 2; m <= MOST; ++m) {
                    const int right = wrong ? m - m / 2 : m;
                    if (!pass(single, passes, &text[at], m, right, options.tensors || at == blamed)) {
                        return false;
                    }
                    at += right;
                }
            }
        }
        return true;
    }

  private:
    // A pass over m tokens, of which so many are right, and each of these alone.
    bool pass(Context & single, Context & passes, const llama_token * text, int m, int right, bool record) {
        blame::Pass              all;
        std::vector<blame::Pass> alone(right);
        std::vector<llama_token> draft(text, text + m);
        for (int i = right; i < m; ++i) {
            draft[i] = (draft[i] + 1) % vocab;
        }
        const int  before = stand_in_counts().graphs;
        const auto logits = passes.decode(draft.data(), at, m, true, record ? &all : nullptr);
        if (m == MOST && !record) { // with a record each operation is a graph
            graphs += stand_in_counts().graphs - before;
            counted++;
        }
        if (right < m) {
            passes.drop_from(at + right);
        }
        int differ = 0;
        for (int j = 0; j < right; ++j) {
            const auto one = single.decode(text + j, at + j, 1, true, record ? &alone[j] : nullptr);
            differ += std::memcmp(one.data(), &logits[(size_t) j * vocab], vocab * sizeof(float)) != 0;
            compared++;
        }
        const bool kept = single.state() == passes.state();
        if (record == options.tensors) { // else it was said before
            if (differ) {
                std::printf("logits of %d tokens of a pass over %d at %d differ\n", differ, m, at);
            }
            if (!kept) {
                std::printf("states after %d of the %d tokens of a pass at %d differ\n", right, m, at);
            }
        }
        return !(record && blame::print(all, m, alone, 6)) && !differ && kept;
    }
};

} // namespace

int main(int argc, char ** argv) try {
    const Options options = parse(argc, argv);
    ggml_backend_load_all();
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            std::fputs(text, stderr);
        }
    }, nullptr);
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers       = options.gpu_layers;
    if (options.gpu_layers > 0) {
        stand_in_gpu((size_t) 4 << 30);
    }
    llama_model * model = llama_model_load_from_file(options.model.c_str(), params);
    if (!model) {
        return 2;
    }
    int failed = 0;
    for (const Setting & setting : options.settings) {
        Walk walk{model, options, setting};
        const bool good = walk.run();
        if (!good && !options.tensors && Walk{model, options, setting}.run(walk.at)) {
            std::printf("no difference where each operation is computed apart\n");
        }
        std::printf("kv %s, flash attention %s, %d threads: %d tokens, %s\n", ggml_type_name(setting.kv),
                    setting.flash ? "on" : "off", setting.threads, walk.compared, good ? "all equal" : "FAILED");
        if (walk.counted && options.gpu_layers > 0) {
            std::printf("%.1f graphs on the GPU in a pass over %d\n", (double) walk.graphs / walk.counted, MOST);
        }
        failed += !good;
    }
    llama_model_free(model);
    return failed ? 1 : 0;
} catch (const std::exception & error) {
    std::fprintf(stderr, "test-passes: %s\n", error.what());
    return 2;
}
