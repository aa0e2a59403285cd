// bench-gpu DEVICE THREADS SECONDS
//
// What `srhpm-plugin calibrate` measures of a GPU under the name that llama-server lists: launch, change of side
// (with so many threads on the CPU's), transfers, and products with some weight types and 1, 4 and 512
// tokens, as many types as start within so many seconds. A JSON object a line; the last one is {"event": "end"}.
// No more than a fourth of its free memory is taken.
int measure_gpu(int argc, char ** argv);

int main(int argc, char ** argv) {
    return measure_gpu(argc, argv);
}
