// SR-HPM: any set of layers on GPUs, where upstream knows only the last so many.
#pragma once

#include <cstddef>
#include <optional>

namespace srhpm {

// Where place `place` of a model lies: the index of a device, or -1 for the CPU. Places 0 to
// n_layers - 1 are its layers, those for drafting included, and n_layers is the output matrix. What
// else a layer has (cache, recurrent state) follows it. Nothing where upstream's rule holds.
//
// SRHPM_GPU_LAYERS lists the places on GPUs, as 3,7-9,out, or with devices as 3@0,7-9@1,out@1 (without, the
// first). It is for a model loaded with --gpu-layers of as many: a drafter in the same process has
// another number, and so upstream's rule. Throws std::runtime_error if it is no list of this model's
// places, each once, on devices that there are.
std::optional<int> placed_layer(int place, int n_layers, int gpu_layers, size_t n_devices);

} // namespace srhpm
