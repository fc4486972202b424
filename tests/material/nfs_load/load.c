/* Puts a load on NFSv3 servers and prints one JSON object of what came out: MiB/s, operations per
 * second, and percentiles of latency, for each phase. Each client is a process with a connection of
 * its own; all start a phase together. A write phase ends with COMMIT, which counts. What is read is
 * checked against what was written.
 *
 * Usage: nfs_load [OPTION]... URL...     (client i takes the URL i modulo their number)
 * Build: cc -O2 -o nfs_load load.c phases.c connection.c -lnfs -pthread     (Debian: libnfs-dev) */

#include "phases.h"

#include <getopt.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PHASES_MAX = 64, CLIENTS_MAX = 64, IN_FLIGHT_MAX = 1024, BLOCK_UNIT = 4096 };

static const char USAGE[] =
    "Usage: nfs_load [OPTION]... URL...    URL: nfs://ADDRESS:PORT/EXPORT?mountport=PORT\n"
    "  --phases LIST     of null, write, rewrite, read, random-read, create, lookup, getattr,\n"
    "                    remove, with commas; NAME:SIZE gives a data phase its block size\n"
    "  --clients N       processes (1)\n"
    "  --in-flight N     requests in flight of each client (8)\n"
    "  --size SIZE       of each client's file (256MiB)\n"
    "  --files N         of each client in the metadata phases (10000)\n"
    "  --reads N         of each client in random-read and null (20000)\n"
    "  --stable HOW      of writes: unstable, data, file (unstable)\n"
    "  --directory NAME  where it happens, in the export's root; made if not there (nfs_load)\n"
    "  --uid N, --gid N  whom the server is told (those of the process)\n"
    "  --stepped         before each phase print 'ready PHASE' and wait for a line, so that\n"
    "                    somebody starts the phase on several hosts together\n"
    "  --keep            leave the files\n";

struct settings {
    struct phase phases[PHASES_MAX];
    unsigned phase_count, clients, in_flight;
    uint64_t file_bytes, files, reads;
    stable_how stable;
    char *directory;
    int uid, gid, keep, stepped;
    struct place places[CLIENTS_MAX];
    unsigned place_count;
};

static uint64_t parse_size(const char *text)
{
    char *end;
    uint64_t size = strtoull(text, &end, 10);
    if (end == text || size == 0)
        fail("'%s' is not a number above 0", text);
    static const char *const UNITS[] = {"", "KiB", "MiB", "GiB"};
    for (unsigned unit = 0; unit < 4; unit++)
        if (strcmp(end, UNITS[unit]) == 0)
            return size << 10 * unit;
    fail("'%s': a size is in bytes, KiB, MiB or GiB", text);
}

static unsigned parse_count(const char *text, unsigned most)
{
    uint64_t count = parse_size(text);
    if (count > most)
        fail("%s is more than %u", text, most);
    return (unsigned)count;
}

static stable_how parse_stable(const char *text)
{
    static const char *const HOWS[] = {"unstable", "data", "file"};
    for (unsigned how = 0; how < 3; how++)
        if (strcmp(text, HOWS[how]) == 0)
            return (stable_how)how;
    fail("'%s' is none of unstable, data, file", text);
}

static struct phase parse_phase(char *text)
{
    struct phase phase = {.block = 1 << 20};
    char *colon = strchr(text, ':');
    if (colon)
        *colon = 0;
    while (phase.kind < KINDS && strcmp(kind_name(phase.kind), text) != 0)
        phase.kind++;
    if (phase.kind == KINDS)
        fail("'%s' is no phase; see --help", text);
    if (colon && !moves_data(phase.kind))
        fail("'%s' moves no data and has no block size", text);
    if (phase.kind == RANDOM_READ)
        phase.block = BLOCK_UNIT;
    if (colon)
        phase.block = parse_count(colon + 1, 64 << 20);
    if (phase.block % BLOCK_UNIT != 0)
        fail("a block size is a multiple of %d bytes", BLOCK_UNIT);
    return phase;
}

static void parse_phases(struct settings *settings, char *list)
{
    settings->phase_count = 0;
    for (char *text = strtok(list, ","); text; text = strtok(NULL, ",")) {
        if (settings->phase_count == PHASES_MAX)
            fail("more than %d phases", PHASES_MAX);
        settings->phases[settings->phase_count++] = parse_phase(text);
    }
}

static struct settings parse_settings(int count, char **arguments)
{
    struct settings settings = {.clients = 1, .in_flight = 8, .file_bytes = 256 << 20, .files = 10000,
                                .reads = 20000, .directory = "nfs_load", .uid = (int)getuid(),
                                .gid = (int)getgid()};
    static const struct option OPTIONS[] = {
        {"phases", 1, NULL, 'p'},    {"clients", 1, NULL, 'c'}, {"in-flight", 1, NULL, 'i'},
        {"size", 1, NULL, 's'},      {"files", 1, NULL, 'f'},   {"reads", 1, NULL, 'r'},
        {"stable", 1, NULL, 't'},    {"directory", 1, NULL, 'd'}, {"uid", 1, NULL, 'u'},
        {"gid", 1, NULL, 'g'},       {"keep", 0, NULL, 'k'},    {"stepped", 0, NULL, 'w'},
        {"help", 0, NULL, 'h'},      {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(count, arguments, "", OPTIONS, NULL)) >= 0) {
        switch (option) {
        case 'p': parse_phases(&settings, optarg); break;
        case 'c': settings.clients = parse_count(optarg, CLIENTS_MAX); break;
        case 'i': settings.in_flight = parse_count(optarg, IN_FLIGHT_MAX); break;
        case 's': settings.file_bytes = parse_size(optarg); break;
        case 'f': settings.files = parse_count(optarg, 10000000); break;
        case 'r': settings.reads = parse_count(optarg, 100000000); break;
        case 't': settings.stable = parse_stable(optarg); break;
        case 'd': settings.directory = optarg; break;
        case 'u': settings.uid = atoi(optarg); break;
        case 'g': settings.gid = atoi(optarg); break;
        case 'k': settings.keep = 1; break;
        case 'w': settings.stepped = 1; break;
        case 'h': fputs(USAGE, stdout); exit(0);
        default: fputs(USAGE, stderr); exit(2);
        }
    }
    for (; optind < count && settings.place_count < CLIENTS_MAX; optind++)
        settings.places[settings.place_count++] = parse_place(arguments[optind]);
    if (settings.place_count == 0 || settings.phase_count == 0) {
        fputs(USAGE, stderr);
        exit(2);
    }
    return settings;
}

/* Memory that the processes share; pages that nobody touches cost nothing. */
static void *share(size_t bytes)
{
    void *shared =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED)
        fail("no memory for the records");
    return shared;
}

static struct client new_client(const struct settings *settings, unsigned number)
{
    struct client client = {.number = number, .in_flight = settings->in_flight,
                            .stable = settings->stable, .file_bytes = settings->file_bytes,
                            .files = settings->files, .reads = settings->reads};
    snprintf(client.file_name, sizeof client.file_name, "c%u.data", number);
    client.handles = calloc(settings->files, sizeof *client.handles);
    if (!client.handles)
        fail("no memory for %llu handles", (unsigned long long)settings->files);
    return client;
}

static void await_word(const struct phase *phase)
{
    char line[64];
    printf("ready %s\n", kind_name(phase->kind));
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        fail("nobody says when to start");
}

static void be_client(const struct settings *settings, unsigned number, struct record *records,
                      pthread_barrier_t *together)
{
    /* Nobody waits at the barrier for a process that nobody waits for. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* libnfs takes and gives back memory for each message: not from the kernel each time. */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    struct client client = new_client(settings, number);
    const struct place *place = &settings->places[number % settings->place_count];
    client.connection = connect_to(place, settings->uid, settings->gid);
    client.directory =
        make_directory(&client.connection, &client.connection.root, settings->directory);
    for (unsigned phase = 0; phase < settings->phase_count; phase++) {
        prepare(&client, &settings->phases[phase]);
        pthread_barrier_wait(together);
        if (settings->stepped && number == 0)
            await_word(&settings->phases[phase]);
        pthread_barrier_wait(together);
        run_phase(&client, &settings->phases[phase], &records[phase * settings->clients + number]);
        pthread_barrier_wait(together);
    }
    if (!settings->keep) {
        remove_what_is_left(&client);
        if (pthread_barrier_wait(together) == PTHREAD_BARRIER_SERIAL_THREAD)
            remove_directory(&client.connection, &client.connection.root, settings->directory);
    }
    disconnect_from(&client.connection);
    exit(0);
}

static void await_clients(void)
{
    int status = 0;
    while (wait(&status) > 0)
        /* The others end with this process. */
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail("a client failed; what it said stands above");
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void print_latencies(const struct record *records, unsigned clients, uint64_t operations)
{
    uint64_t *all = malloc((operations + 1) * sizeof *all), count = 0;
    if (!all)
        fail("no memory for %llu latencies", (unsigned long long)operations);
    for (unsigned client = 0; client < clients; client++) {
        size_t bytes = records[client].operations * sizeof *all;
        memcpy(all + count, records[client].latency_ns, bytes);
        count += records[client].operations;
    }
    qsort(all, count, sizeof *all, compare);
    static const struct { const char *name; double share; } POINTS[] = {
        {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};
    printf("\"latency_us\": {");
    for (unsigned point = 0; point < 5; point++) {
        uint64_t at = (uint64_t)((double)(count - 1) * POINTS[point].share);
        printf("%s\"%s\": %.1f", point ? ", " : "", POINTS[point].name, (double)all[at] / 1e3);
    }
    printf("}");
    free(all);
}

static void print_phase(const struct settings *settings, unsigned number, const struct record *records)
{
    const struct phase *phase = &settings->phases[number];
    uint64_t started = UINT64_MAX, ended = 0, bytes = 0, operations = 0;
    for (unsigned client = 0; client < settings->clients; client++) {
        const struct record *record = &records[client];
        started = record->started_ns < started ? record->started_ns : started;
        ended = record->ended_ns > ended ? record->ended_ns : ended;
        bytes += record->bytes;
        operations += record->operations;
    }
    double seconds = (double)(ended - started) / 1e9;
    printf("%s\n  {\"phase\": \"%s\", ", number ? "," : "", kind_name(phase->kind));
    if (moves_data(phase->kind))
        printf("\"block\": %u, \"transfer\": %u, \"bytes\": %llu, \"mib_per_second\": %.1f, ",
               phase->block, records[0].transfer, (unsigned long long)bytes,
               (double)bytes / (1 << 20) / seconds);
    printf("\"operations\": %llu, \"seconds\": %.6f, \"per_second\": %.1f, ",
           (unsigned long long)operations, seconds, (double)operations / seconds);
    print_latencies(records, settings->clients, operations);
    printf("}");
}

int main(int count, char **arguments)
{
    struct settings settings = parse_settings(count, arguments);
    pthread_barrier_t *together = share(sizeof *together);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(together, &shared, settings.clients);

    unsigned total = settings.phase_count * settings.clients;
    struct record *records = share(total * sizeof *records);
    struct client sizes = {.file_bytes = settings.file_bytes, .files = settings.files,
                           .reads = settings.reads};
    for (unsigned each = 0; each < total; each++) {
        const struct phase *phase = &settings.phases[each / settings.clients];
        records[each].latency_ns = share(operations_max(&sizes, phase) * sizeof(uint64_t));
    }
    for (unsigned client = 0; client < settings.clients; client++) {
        pid_t pid = fork();
        if (pid < 0)
            fail("no process for client %u", client);
        if (pid == 0)
            be_client(&settings, client, records, together);
    }
    await_clients();
    printf("{\"clients\": %u, \"in_flight\": %u, \"phases\": [", settings.clients, settings.in_flight);
    for (unsigned phase = 0; phase < settings.phase_count; phase++)
        print_phase(&settings, phase, &records[phase * settings.clients]);
    puts("\n]}");
    return 0;
}
