// A variant of the CPU backend that was left out (inject.cmake).
typedef int dflash_nothing;
