#include "connection.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("nfs_load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

struct place parse_place(const char *url)
{
    struct place place = {.mount_port = 0};
    int after = 0;
    if (sscanf(url, "nfs://%127[^:/]:%d%n", place.address, &place.nfs_port, &after) != 2 ||
        url[after] != '/')
        fail("'%s' is not of the form nfs://ADDRESS:PORT/EXPORT?mountport=PORT", url);
    const char *path = url + after, *question = strchr(path, '?');
    size_t length = question ? (size_t)(question - path) : strlen(path);
    if (length >= sizeof place.export)
        fail("the export in '%s' is longer than %d bytes", url, EXPORT_BYTES);
    memcpy(place.export, path, length);
    if (question && sscanf(question, "?mountport=%d", &place.mount_port) != 1)
        fail("'%s': only mountport=PORT can follow the question mark", url);
    if (place.mount_port == 0)
        place.mount_port = place.nfs_port;
    return place;
}

struct nfs_fh3 as_argument(const struct handle *handle)
{
    struct nfs_fh3 argument;
    argument.data.data_len = handle->length;
    argument.data.data_val = (char *)handle->bytes;
    return argument;
}

static struct handle copy_handle(const char *bytes, unsigned length)
{
    struct handle handle = {.length = length};
    if (length == 0 || length > sizeof handle.bytes)
        fail("the server gave a file handle of %u bytes", length);
    memcpy(handle.bytes, bytes, length);
    return handle;
}

struct handle handle_of(const struct nfs_fh3 *handle)
{
    return copy_handle(handle->data.data_val, handle->data.data_len);
}

struct createhow3 creation(createmode3 mode)
{
    struct createhow3 how;
    memset(&how, 0, sizeof how);
    how.mode = mode;
    how.createhow3_u.obj_attributes.mode.set_it = 1;
    how.createhow3_u.obj_attributes.mode.set_mode3_u.mode = 0644;
    return how;
}

void turn(struct rpc_context *rpc)
{
    struct pollfd ready = {.fd = rpc_get_fd(rpc), .events = (short)rpc_which_events(rpc)};
    int count = poll(&ready, 1, PATIENCE_MS);
    if (count < 0 && errno == EINTR)
        return;
    if (count == 0)
        fail("the server has not answered for %d s", PATIENCE_MS / 1000);
    if (count < 0 || rpc_service(rpc, ready.revents) < 0)
        fail("the connection broke: %s", rpc_get_error(rpc));
}

/* What a call made alone leaves behind: the status, and a handle or limits where it has them. */
struct answer {
    int done, status;
    uint32_t read_max, write_max;
    struct handle handle;
    const char *what;
};

static void await(struct rpc_context *rpc, struct answer *answer, int queued)
{
    if (queued < 0)
        fail("%s: %s", answer->what, rpc_get_error(rpc));
    while (!answer->done)
        turn(rpc);
}

static struct answer *arrived(int status, void *data, void *private_data)
{
    struct answer *answer = private_data;
    if (status != RPC_STATUS_SUCCESS)
        fail("%s: %s", answer->what, status == RPC_STATUS_ERROR && data ? (char *)data : "cancelled");
    answer->done = 1;
    return answer;
}

static void on_connected(struct rpc_context *rpc, int status, void *data, void *private_data)
{
    (void)rpc;
    arrived(status, data, private_data);
}

static struct rpc_context *connect_program(const struct place *place, int port, int program)
{
    struct rpc_context *rpc = rpc_init_context();
    if (!rpc)
        fail("no memory for a connection");
    struct answer answer = {.what = "connecting"};
    int queued =
        rpc_connect_port_async(rpc, place->address, port, program, 3, on_connected, &answer);
    await(rpc, &answer, queued);
    return rpc;
}

static void on_mounted(struct rpc_context *rpc, int status, void *data, void *private_data)
{
    (void)rpc;
    struct answer *answer = arrived(status, data, private_data);
    mountres3 *result = data;
    answer->status = (int)result->fhs_status;
    if (result->fhs_status == MNT3_OK) {
        fhandle3 *root = &result->mountres3_u.mountinfo.fhandle;
        answer->handle = copy_handle(root->fhandle3_val, root->fhandle3_len);
    }
}

static void on_limits(struct rpc_context *rpc, int status, void *data, void *private_data)
{
    (void)rpc;
    struct answer *answer = arrived(status, data, private_data);
    struct FSINFO3res *result = data;
    answer->status = (int)result->status;
    answer->read_max = result->FSINFO3res_u.resok.rtmax;
    answer->write_max = result->FSINFO3res_u.resok.wtmax;
}

struct connection connect_to(const struct place *place, int uid, int gid)
{
    struct answer mounted = {.what = "MNT"};
    struct rpc_context *mount = connect_program(place, place->mount_port, MOUNT_PROGRAM);
    rpc_set_uid(mount, uid);
    rpc_set_gid(mount, gid);
    await(mount, &mounted,
          rpc_mount3_mnt_async(mount, on_mounted, (char *)place->export, &mounted));
    if (mounted.status != MNT3_OK)
        fail("the mount of '%s' was refused with status %d", place->export, mounted.status);
    rpc_disconnect(mount, "done");
    rpc_destroy_context(mount);

    struct answer limits = {.what = "FSINFO"};
    struct connection connection = {.root = mounted.handle};
    connection.rpc = connect_program(place, place->nfs_port, NFS_PROGRAM);
    rpc_set_uid(connection.rpc, uid);
    rpc_set_gid(connection.rpc, gid);
    /* Or two clients of one process id in two network namespaces would number their calls alike. */
    rpc_set_next_xid(connection.rpc, (uint32_t)(now_ns() ^ ((uint64_t)getpid() << 16)));
    struct FSINFO3args arguments = {.fsroot = as_argument(&connection.root)};
    await(connection.rpc, &limits,
          rpc_nfs3_fsinfo_async(connection.rpc, on_limits, &arguments, &limits));
    if (limits.status != NFS3_OK || limits.read_max == 0 || limits.write_max == 0)
        fail("FSINFO of '%s': status %d", place->export, limits.status);
    connection.read_max = limits.read_max;
    connection.write_max = limits.write_max;
    return connection;
}

void disconnect_from(struct connection *connection)
{
    rpc_disconnect(connection->rpc, "done");
    rpc_destroy_context(connection->rpc);
}

static void on_looked_up(struct rpc_context *rpc, int status, void *data, void *private_data)
{
    (void)rpc;
    struct answer *answer = arrived(status, data, private_data);
    struct LOOKUP3res *result = data;
    answer->status = (int)result->status;
    if (result->status == NFS3_OK)
        answer->handle = handle_of(&result->LOOKUP3res_u.resok.object);
}

static struct handle look_up(struct connection *connection, const struct handle *parent, char *name)
{
    struct answer answer = {.what = "LOOKUP"};
    struct LOOKUP3args arguments = {.what = {.dir = as_argument(parent), .name = name}};
    await(connection->rpc, &answer,
          rpc_nfs3_lookup_async(connection->rpc, on_looked_up, &arguments, &answer));
    if (answer.status != NFS3_OK)
        fail("LOOKUP of %s: NFS status %d", name, answer.status);
    return answer.handle;
}

/* For replies of which only the status is wanted: it comes first in all of them. */
static void on_status(struct rpc_context *rpc, int status, void *data, void *private_data)
{
    (void)rpc;
    arrived(status, data, private_data)->status = (int)*(nfsstat3 *)data;
}

struct handle make_directory(struct connection *connection, const struct handle *parent, char *name)
{
    struct answer answer = {.what = "MKDIR"};
    struct MKDIR3args arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.where.dir = as_argument(parent);
    arguments.where.name = name;
    arguments.attributes.mode.set_it = 1;
    arguments.attributes.mode.set_mode3_u.mode = 0777;
    await(connection->rpc, &answer,
          rpc_nfs3_mkdir_async(connection->rpc, on_status, &arguments, &answer));
    /* Another client of this run may have been first. */
    if (answer.status != NFS3_OK && answer.status != NFS3ERR_EXIST)
        fail("MKDIR of %s: NFS status %d", name, answer.status);
    return look_up(connection, parent, name);
}

void remove_directory(struct connection *connection, const struct handle *parent, char *name)
{
    struct answer answer = {.what = "RMDIR"};
    struct RMDIR3args arguments = {.object = {.dir = as_argument(parent), .name = name}};
    await(connection->rpc, &answer,
          rpc_nfs3_rmdir_async(connection->rpc, on_status, &arguments, &answer));
    if (answer.status != NFS3_OK)
        fail("RMDIR of %s: NFS status %d", name, answer.status);
}

int remove_file(struct connection *connection, const struct handle *parent, char *name)
{
    struct answer answer = {.what = "REMOVE"};
    struct REMOVE3args arguments = {.object = {.dir = as_argument(parent), .name = name}};
    await(connection->rpc, &answer,
          rpc_nfs3_remove_async(connection->rpc, on_status, &arguments, &answer));
    return answer.status;
}

struct handle create_file(struct connection *connection, const struct handle *parent, char *name)
{
    struct answer answer = {.what = "CREATE"};
    struct CREATE3args arguments = {.where = {.dir = as_argument(parent), .name = name},
                                    .how = creation(UNCHECKED)};
    await(connection->rpc, &answer,
          rpc_nfs3_create_async(connection->rpc, on_status, &arguments, &answer));
    if (answer.status != NFS3_OK)
        fail("CREATE of %s: NFS status %d", name, answer.status);
    return look_up(connection, parent, name);
}
