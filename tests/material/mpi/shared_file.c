/* Every rank writes its blocks of one shared file by MPI-IO, independently and collectively, and reads
 * its neighbour's. Prints what is wrong; the exit code is the number of wrong blocks. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 65536 + 17, BLOCKS = 8 };

static void fill(unsigned char *block, int rank, int turn)
{
    for (int at = 0; at < BLOCK_BYTES; at++)
        block[at] = (unsigned char)(at * 7 + rank * 31 + turn * 3);
}

static int check(const unsigned char *found, int rank, int turn, const char *how)
{
    unsigned char *expected = malloc(BLOCK_BYTES);
    fill(expected, rank, turn);
    int wrong = memcmp(found, expected, BLOCK_BYTES) != 0;
    if (wrong)
        printf("%s: block %d of rank %d is wrong\n", how, turn, rank);
    free(expected);
    return wrong;
}

static void need(int result, const char *what)
{
    if (result == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(result, text, &length);
    fprintf(stderr, "%s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 99);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 0, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 2)
        MPI_Abort(MPI_COMM_WORLD, 98);
    unsigned char *block = malloc(BLOCK_BYTES);
    MPI_File file;
    int mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    need(MPI_File_open(MPI_COMM_WORLD, argv[1], mode, MPI_INFO_NULL, &file), "open");
    for (int turn = 0; turn < BLOCKS; turn++) {
        MPI_Offset at = ((MPI_Offset)turn * ranks + rank) * BLOCK_BYTES;
        fill(block, rank, turn);
        need(turn % 2 ? MPI_File_write_at_all(file, at, block, BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE)
                      : MPI_File_write_at(file, at, block, BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE),
             "write");
    }
    need(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    int next = (rank + 1) % ranks;
    for (int turn = 0; turn < BLOCKS; turn++) {
        MPI_Offset at = ((MPI_Offset)turn * ranks + next) * BLOCK_BYTES;
        memset(block, 0, BLOCK_BYTES);
        need(turn % 2 ? MPI_File_read_at_all(file, at, block, BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE)
                      : MPI_File_read_at(file, at, block, BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE),
             "read");
        wrong += check(block, next, turn, turn % 2 ? "collective" : "independent");
    }
    MPI_Offset bytes = 0;
    need(MPI_File_get_size(file, &bytes), "size");
    if (bytes != (MPI_Offset)BLOCKS * ranks * BLOCK_BYTES) {
        printf("the file has %lld bytes\n", (long long)bytes);
        wrong++;
    }
    need(MPI_File_close(&file), "close");
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    free(block);
    MPI_Finalize();
    return all;
}
