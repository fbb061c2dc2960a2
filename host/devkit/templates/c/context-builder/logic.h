// What the plugin does, without anything of the host: it is tested as it is.

#include <stddef.h>

// The same in every turn, so that providers' prompt caches hit.
extern const char ANSWERING[];

// Says for whom the answer is. To be freed.
char *reader(const char *user, size_t length);
