/* Preloaded, makes a program one that its own user may not look into, like one with file
 * capabilities. */
#include <sys/prctl.h>

__attribute__((constructor)) static void become_undumpable(void) { prctl(PR_SET_DUMPABLE, 0); }
