#include "phases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every so many bytes of a file begin with a stamp that says where they belong. */
enum { STAMP_EVERY = 4096 };

struct run;

/* A request in flight; its place is used again for the next one. */
struct request {
    struct run *run;
    uint64_t number, sent_ns, offset;
    uint32_t bytes;
};

struct run {
    struct client *client;
    const struct phase *phase;
    struct record *record;
    uint64_t next, total, done;
    uint64_t random;
    char *data;
    char verifier[NFS3_WRITEVERFSIZE];
    int has_verifier;
};

static const char *const NAMES[KINDS] = {"null",   "write",  "rewrite", "read",  "random-read",
                                         "create", "lookup", "getattr", "remove"};

const char *kind_name(enum kind kind)
{
    return NAMES[kind];
}

int moves_data(enum kind kind)
{
    return kind == WRITE || kind == REWRITE || kind == READ || kind == RANDOM_READ;
}

static int is_write(enum kind kind)
{
    return kind == WRITE || kind == REWRITE;
}

static void file_name(char *name, const struct client *client, uint64_t number)
{
    snprintf(name, NAME_BYTES, "c%u.f%06llu", client->number, (unsigned long long)number);
}

/* The upper 56 bits are of the client and the place, the lower 8 of the pass. */
static uint64_t stamp(const struct client *client, uint64_t offset)
{
    uint64_t mixed = (offset + 1 + ((uint64_t)client->number << 48)) * 0x9E3779B97F4A7C15ULL;
    return (mixed ^ mixed >> 29) << 8 | (client->pass & 0xff);
}

static void put_stamps(struct run *run, uint64_t offset, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += STAMP_EVERY) {
        uint64_t value = stamp(run->client, offset + at);
        memcpy(run->data + at, &value, sizeof value);
    }
}

static void check_stamps(const struct client *client, const char *data, uint64_t offset, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += STAMP_EVERY) {
        uint64_t found, expected = stamp(client, offset + at);
        memcpy(&found, data + at, sizeof found);
        if (client->pass == 0)
            found &= ~0xffULL;
        if (found != expected)
            fail("%s has wrong bytes at %llu: %016llx and not %016llx", client->file_name,
                 (unsigned long long)(offset + at), (unsigned long long)found,
                 (unsigned long long)expected);
    }
}

static uint64_t next_random(struct run *run)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return run->random;
}

static void take_bytes(struct run *run, struct request *request)
{
    const struct client *client = run->client;
    uint32_t transfer = run->record->transfer;
    uint64_t slot = request->number;
    if (run->phase->kind == RANDOM_READ)
        slot = next_random(run) % (client->file_bytes / transfer);
    request->offset = slot * transfer;
    uint64_t left = client->file_bytes - request->offset;
    request->bytes = left < transfer ? (uint32_t)left : transfer;
}

static void on_reply(struct rpc_context *rpc, int status, void *data, void *private_data);

static int send_data(struct run *run, struct request *request)
{
    struct client *client = run->client;
    take_bytes(run, request);
    if (!is_write(run->phase->kind)) {
        struct READ3args arguments = {as_argument(&client->file), request->offset, request->bytes};
        return rpc_nfs3_read_async(client->connection.rpc, on_reply, &arguments, request);
    }
    put_stamps(run, request->offset, request->bytes);
    struct WRITE3args arguments = {.file = as_argument(&client->file),
                                   .offset = request->offset,
                                   .count = request->bytes,
                                   .stable = client->stable,
                                   .data = {request->bytes, run->data}};
    return rpc_nfs3_write_async(client->connection.rpc, on_reply, &arguments, request);
}

static int send_metadata(struct run *run, struct request *request)
{
    struct client *client = run->client;
    struct rpc_context *rpc = client->connection.rpc;
    char name[NAME_BYTES];
    file_name(name, client, request->number);
    struct diropargs3 where = {.dir = as_argument(&client->directory), .name = name};
    switch (run->phase->kind) {
    case CREATE: {
        struct CREATE3args arguments = {.where = where, .how = creation(GUARDED)};
        return rpc_nfs3_create_async(rpc, on_reply, &arguments, request);
    }
    case LOOKUP: {
        struct LOOKUP3args arguments = {.what = where};
        return rpc_nfs3_lookup_async(rpc, on_reply, &arguments, request);
    }
    case GETATTR: {
        struct GETATTR3args arguments = {.object = as_argument(&client->handles[request->number])};
        return rpc_nfs3_getattr_async(rpc, on_reply, &arguments, request);
    }
    case REMOVE: {
        struct REMOVE3args arguments = {.object = where};
        return rpc_nfs3_remove_async(rpc, on_reply, &arguments, request);
    }
    default:
        return rpc_nfs3_null_async(rpc, on_reply, request);
    }
}

static void send_next(struct run *run, struct request *request)
{
    request->number = run->next++;
    request->sent_ns = now_ns();
    int queued = moves_data(run->phase->kind) ? send_data(run, request) : send_metadata(run, request);
    if (queued < 0)
        fail("%s: %s", NAMES[run->phase->kind], rpc_get_error(run->client->connection.rpc));
}

static void take_read(struct run *run, struct request *request, struct READ3res *result)
{
    struct READ3resok *read = &result->READ3res_u.resok;
    if (read->count != request->bytes || read->data.data_len != request->bytes)
        fail("READ at %llu gave %u of %u bytes", (unsigned long long)request->offset, read->count,
             request->bytes);
    check_stamps(run->client, read->data.data_val, request->offset, request->bytes);
}

static void take_verifier(struct run *run, const char *verifier)
{
    if (run->has_verifier && memcmp(run->verifier, verifier, sizeof run->verifier) != 0)
        fail("the write verifier changed: the server lost what it had not yet committed");
    memcpy(run->verifier, verifier, sizeof run->verifier);
    run->has_verifier = 1;
}

static void take_written(struct run *run, struct request *request, struct WRITE3res *result)
{
    struct WRITE3resok *written = &result->WRITE3res_u.resok;
    if (written->count != request->bytes)
        fail("WRITE at %llu took %u of %u bytes", (unsigned long long)request->offset, written->count,
             request->bytes);
    if (written->committed < run->client->stable)
        fail("WRITE is less stable than asked for");
    take_verifier(run, written->verf);
}

/* The handle of a created file, which is needed for GETATTR and may be left out by the server. */
static void take_created(struct run *run, struct request *request, struct CREATE3res *result)
{
    struct post_op_fh3 *created = &result->CREATE3res_u.resok.obj;
    struct handle *place = &run->client->handles[request->number];
    place->length = 0;
    if (created->handle_follows)
        *place = handle_of(&created->post_op_fh3_u.handle);
}

static void take_reply(struct run *run, struct request *request, void *data)
{
    enum kind kind = run->phase->kind;
    if (kind == NOTHING)
        return;
    /* The status comes first in every result. */
    nfsstat3 status = *(nfsstat3 *)data;
    if (status != NFS3_OK)
        fail("%s, request %llu: NFS status %d", NAMES[kind], (unsigned long long)request->number,
             (int)status);
    if (is_write(kind))
        take_written(run, request, data);
    else if (moves_data(kind))
        take_read(run, request, data);
    else if (kind == CREATE)
        take_created(run, request, data);
    else if (kind == LOOKUP)
        run->client->handles[request->number] =
            handle_of(&((struct LOOKUP3res *)data)->LOOKUP3res_u.resok.object);
}

static void on_reply(struct rpc_context *rpc, int status, void *data, void *private_data)
{
    struct request *request = private_data;
    struct run *run = request->run;
    if (status != RPC_STATUS_SUCCESS)
        fail("%s: %s", NAMES[run->phase->kind], rpc_get_error(rpc));
    run->record->latency_ns[request->number] = now_ns() - request->sent_ns;
    take_reply(run, request, data);
    run->record->bytes += request->bytes;
    run->done++;
    if (run->next < run->total)
        send_next(run, request);
}

static void on_committed(struct rpc_context *rpc, int status, void *data, void *private_data)
{
    struct run *run = private_data;
    struct COMMIT3res *result = data;
    if (status != RPC_STATUS_SUCCESS)
        fail("COMMIT: %s", rpc_get_error(rpc));
    if (result->status != NFS3_OK)
        fail("COMMIT: NFS status %d", (int)result->status);
    take_verifier(run, result->COMMIT3res_u.resok.verf);
    run->done++;
}

static void commit(struct run *run)
{
    struct rpc_context *rpc = run->client->connection.rpc;
    struct COMMIT3args arguments = {.file = as_argument(&run->client->file)};
    uint64_t before = run->done;
    if (rpc_nfs3_commit_async(rpc, on_committed, &arguments, run) < 0)
        fail("COMMIT: %s", rpc_get_error(rpc));
    while (run->done == before)
        turn(rpc);
}

uint64_t operations_max(const struct client *client, const struct phase *phase)
{
    switch (phase->kind) {
    case WRITE:
    case REWRITE:
    case READ:
        /* A server may take no more than this at once. */
        return client->file_bytes / STAMP_EVERY + 1;
    case RANDOM_READ:
    case NOTHING:
        return client->reads;
    default:
        return client->files;
    }
}

static uint64_t operations(const struct client *client, const struct phase *phase, uint32_t transfer)
{
    if (moves_data(phase->kind) && phase->kind != RANDOM_READ)
        return (client->file_bytes + transfer - 1) / transfer;
    return operations_max(client, phase);
}

static uint32_t transfer_of(const struct client *client, const struct phase *phase)
{
    if (!moves_data(phase->kind))
        return 0;
    const struct connection *connection = &client->connection;
    uint32_t most = is_write(phase->kind) ? connection->write_max : connection->read_max;
    uint32_t transfer = phase->block < most ? phase->block : most / STAMP_EVERY * STAMP_EVERY;
    if (transfer == 0)
        fail("the server takes %u bytes at once; %d are needed", most, STAMP_EVERY);
    return transfer;
}

void prepare(struct client *client, const struct phase *phase)
{
    if (phase->kind == WRITE)
        remove_file(&client->connection, &client->directory, client->file_name);
    if (moves_data(phase->kind) && (phase->kind == WRITE || client->file.length == 0))
        client->file = create_file(&client->connection, &client->directory, client->file_name);
    if (is_write(phase->kind))
        client->pass++;
    for (uint64_t file = 0; phase->kind == GETATTR && file < client->files; file++)
        if (client->handles[file].length == 0)
            fail("getattr needs a create or a lookup before it");
}

void run_phase(struct client *client, const struct phase *phase, struct record *record)
{
    struct run run = {.client = client, .phase = phase, .record = record};
    struct request *requests = calloc(client->in_flight, sizeof *requests);
    record->transfer = transfer_of(client, phase);
    run.data = calloc(1, record->transfer + 1);
    run.total = operations(client, phase, record->transfer);
    run.random = 0x2545F4914F6CDD1DULL + client->number * 0x9E3779B97F4A7C15ULL;
    if (!requests || !run.data)
        fail("no memory for %u requests", client->in_flight);
    record->started_ns = now_ns();
    for (unsigned place = 0; place < client->in_flight && run.next < run.total; place++) {
        requests[place].run = &run;
        send_next(&run, &requests[place]);
    }
    while (run.done < run.total)
        turn(client->connection.rpc);
    if (is_write(phase->kind))
        commit(&run);
    record->ended_ns = now_ns();
    record->operations = run.total;
    free(requests);
    free(run.data);
}

void remove_what_is_left(struct client *client)
{
    if (client->file.length > 0)
        remove_file(&client->connection, &client->directory, client->file_name);
    for (uint64_t file = 0; client->handles[0].length > 0 && file < client->files; file++) {
        char name[NAME_BYTES];
        file_name(name, client, file);
        if (remove_file(&client->connection, &client->directory, name) == NFS3ERR_NOENT)
            break;
    }
}
