extern "C" __attribute__((visibility("default"))) int a_library() {
    return 1;
}
