/* Several processes that share nothing but this: who they are, a barrier, and a broadcast from the
 * first. With MPI they are its ranks, without it children that were made before anything else. */
#ifndef CREW_H
#define CREW_H

#include <stddef.h>

/* Starts the crew; gives the rank, and in *size how many there are. */
int crew_start(int *argc, char ***argv, int *size);
void crew_barrier(void);
void crew_broadcast(void *data, size_t bytes);
/* Ends the crew. In the first process: 0 if all of them came to this point. */
int crew_end(void);

#endif
