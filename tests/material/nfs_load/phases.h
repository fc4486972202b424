/* What a client does in one phase of a run: requests of one kind, so many of them in flight. */

#ifndef NFS_LOAD_PHASES_H
#define NFS_LOAD_PHASES_H

#include "connection.h"

enum kind { NOTHING, WRITE, REWRITE, READ, RANDOM_READ, CREATE, LOOKUP, GETATTR, REMOVE, KINDS };

struct phase {
    enum kind kind;
    uint32_t block; /* bytes; of data phases */
};

/* What a client tells of a phase, in memory that it shares with the process that started it. */
struct record {
    uint64_t started_ns, ended_ns;
    uint64_t bytes, operations;
    uint32_t transfer; /* bytes in one request, after the server's limit */
    uint64_t *latency_ns;
};

struct client {
    struct connection connection;
    struct handle directory, file;
    char file_name[NAME_BYTES];
    unsigned number, in_flight;
    /* Which writing of the file this is, in this run; 0: none yet, it was written by an earlier one. */
    unsigned pass;
    stable_how stable;
    uint64_t file_bytes, files, reads;
    struct handle *handles; /* of the files of the metadata phases */
};

const char *kind_name(enum kind kind);
int moves_data(enum kind kind);
/* Room for the latencies of one phase. */
uint64_t operations_max(const struct client *client, const struct phase *phase);
/* What has to be there before the clock starts. */
void prepare(struct client *client, const struct phase *phase);
void run_phase(struct client *client, const struct phase *phase, struct record *record);
void remove_what_is_left(struct client *client);

#endif
