// SR-HPM bench: how fast memory is read by so many threads, with huge pages and with small ones.
#pragma once

namespace bench {

// Prints a sample per number of threads (1, 2, 4 and so on up to `threads`), kind of pages and round.
// Where the system takes no wish for huge pages there are only its own.
void measure_memory(int threads, int rounds);

} // namespace bench
