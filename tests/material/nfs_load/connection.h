/* One connection to an NFSv3 server by libnfs' raw calls: no cache, no splitting of requests, no
 * sending again stands between a measurement and the server. Ends the process on any error. */

#ifndef NFS_LOAD_CONNECTION_H
#define NFS_LOAD_CONNECTION_H

#include <stdint.h>
#include <time.h>

#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

enum { NAME_BYTES = 128, EXPORT_BYTES = 1024 };

/* Where a server is: nfs://ADDRESS:PORT/EXPORT?mountport=PORT, which is what a gateway prints. */
struct place {
    char address[NAME_BYTES];
    char export[EXPORT_BYTES];
    int nfs_port, mount_port;
};

/* A file handle that is ours, as those of replies are gone when their callback returns. */
struct handle {
    char bytes[NFS3_FHSIZE];
    unsigned length;
};

struct connection {
    struct rpc_context *rpc;
    struct handle root;
    /* The most that the server takes in one READ and one WRITE, in bytes (FSINFO). */
    uint32_t read_max, write_max;
};

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Says what failed and ends the process with code 1. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);

struct place parse_place(const char *url);
/* Mounts the export and asks for its limits, as that user of AUTH_SYS. */
struct connection connect_to(const struct place *place, int uid, int gid);
void disconnect_from(struct connection *connection);
/* Waits until the socket is ready and does what can be done; callbacks run in here. */
void turn(struct rpc_context *rpc);

/* One call at a time, for what is not measured. */
struct handle make_directory(struct connection *connection, const struct handle *parent, char *name);
void remove_directory(struct connection *connection, const struct handle *parent, char *name);
/* The status that the server answered with: NFS3ERR_NOENT is for the caller to judge. */
int remove_file(struct connection *connection, const struct handle *parent, char *name);
struct handle create_file(struct connection *connection, const struct handle *parent, char *name);

struct nfs_fh3 as_argument(const struct handle *handle);
struct handle handle_of(const struct nfs_fh3 *handle);
/* How a file is created: 0644, everything else left to the server. */
struct createhow3 creation(createmode3 mode);

#endif
