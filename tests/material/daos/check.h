/* What the programs say when something is not as it should be. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                          \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);   \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#define CHECK_RC(call, wanted)                                                                    \
	do {                                                                                      \
		int rc_ = (call);                                                                 \
		if (rc_ != (wanted)) {                                                            \
			fprintf(stderr, "%s:%d: %s: %d, not %d\n", __FILE__, __LINE__, #call,     \
				rc_, (wanted));                                                   \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#endif
