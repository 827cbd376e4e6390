/* Copies a tree of small files to an NFS server and back with libnfs, lists it and removes it, and prints the seconds of each: a
 * comparison for tests/kernel/timings/longlink.sh.
 *
 * small-files-libnfs SERVER PORT MOUNT_PORT EXPORT TREE; TREE has directories of files.
 *
 * Version 3, since libnfs 4.0 cannot write in version 4. It uses libnfs's calls by file handle, many at a time: its calls by path
 * look up each path anew. */
#include <dirent.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <nfsc/libnfs-zdr.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

#define NAME "small-files-libnfs"
/* Operations in flight together. */
#define IN_FLIGHT 64
/* Bytes of a READ and of a listing's reply. */
#define REPLY_BYTES (1 << 16)

struct handle {
    unsigned length;
    char bytes[NFS3_FHSIZE];
};

/* A directory or file of the local tree, or of the server's. */
struct object {
    struct object *parent;
    char *name;
    bool is_directory;
    size_t size;
    char *data;
    struct handle handle;
};

struct list {
    struct object **items;
    int count;
};

static struct rpc_context *rpc;
static int in_flight;
static struct object top = {.name = NAME, .is_directory = true};
static struct handle root;

_Noreturn static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, NAME ": ");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static struct object *add(struct list *list, struct object *parent, const char *name) {
    if (list->count % 1024 == 0)
        list->items = realloc(list->items, (list->count + 1024) * sizeof *list->items);
    struct object *object = calloc(1, sizeof *object);
    object->parent = parent;
    object->name = strdup(name);
    return list->items[list->count++] = object;
}

/* Waits until fewer calls than this are in flight. */
static void wait_below(int limit) {
    while (in_flight >= limit) {
        struct pollfd wanted = {.fd = rpc_get_fd(rpc), .events = rpc_which_events(rpc)};
        if (poll(&wanted, 1, -1) < 0 || rpc_service(rpc, wanted.revents) < 0)
            fail("connection: %s", rpc_get_error(rpc));
    }
}

/* Checks the end of a call, whose result begins with the status. */
static void check(const char *operation, const char *name, int status, void *data) {
    if (status != RPC_STATUS_SUCCESS)
        fail("%s %s: %s", operation, name, status == RPC_STATUS_ERROR ? (char *)data : "canceled");
    int result = *(int *)data;
    if (result != 0)
        fail("%s %s: status %d", operation, name, result);
}

static void queued(int outcome, const char *operation) {
    if (outcome != 0)
        fail("%s: cannot be sent", operation);
}

/* Runs an operation for each object, many at a time. */
static void each(const struct list *list, void (*start)(struct object *)) {
    for (int item = 0; item < list->count; item++) {
        wait_below(IN_FLIGHT);
        in_flight++;
        start(list->items[item]);
    }
    wait_below(1);
}

static void each_of(struct object *object, void (*start)(struct object *)) {
    struct list one = {.items = &object, .count = 1};
    each(&one, start);
}

static nfs_fh3 wire(struct handle *handle) {
    return (nfs_fh3){.data = {.data_len = handle->length, .data_val = handle->bytes}};
}

static void keep(struct handle *handle, unsigned length, const char *bytes) {
    if (length > sizeof handle->bytes)
        fail("a handle is too long");
    handle->length = length;
    memcpy(handle->bytes, bytes, length);
}

static diropargs3 where(struct object *object) {
    return (diropargs3){.dir = wire(object->parent ? &object->parent->handle : &root), .name = object->name};
}

static sattr3 mode(unsigned bits) {
    return (sattr3){.mode = {.set_it = 1, .set_mode3_u = {.mode = bits}}};
}

static void done(struct rpc_context *, int status, void *data, void *object) {
    check("removal", ((struct object *)object)->name, status, data);
    in_flight--;
}

static void made(struct rpc_context *, int status, void *data, void *argument) {
    struct object *object = argument;
    check("MKDIR", object->name, status, data);
    post_op_fh3 *handle = &((MKDIR3res *)data)->MKDIR3res_u.resok.obj;
    if (!handle->handle_follows)
        fail("MKDIR without a handle");
    keep(&object->handle, handle->post_op_fh3_u.handle.data.data_len, handle->post_op_fh3_u.handle.data.data_val);
    in_flight--;
}

static void make_directory(struct object *object) {
    MKDIR3args arguments = {.where = where(object), .attributes = mode(0755)};
    queued(rpc_nfs3_mkdir_async(rpc, made, &arguments, object), "MKDIR");
}

static void written(struct rpc_context *, int status, void *data, void *argument) {
    struct object *object = argument;
    check("WRITE", object->name, status, data);
    WRITE3resok *result = &((WRITE3res *)data)->WRITE3res_u.resok;
    if (result->count != object->size || result->committed != FILE_SYNC)
        fail("WRITE %s: incomplete", object->name);
    in_flight--;
}

static void created(struct rpc_context *, int status, void *data, void *argument) {
    struct object *object = argument;
    check("CREATE", object->name, status, data);
    post_op_fh3 *handle = &((CREATE3res *)data)->CREATE3res_u.resok.obj;
    if (!handle->handle_follows)
        fail("CREATE without a handle");
    /* A stable WRITE saves the COMMIT. */
    WRITE3args arguments = {
        .file = handle->post_op_fh3_u.handle,
        .count = object->size,
        .stable = FILE_SYNC,
        .data = {.data_len = object->size, .data_val = object->data},
    };
    queued(rpc_nfs3_write_async(rpc, written, &arguments, object), "WRITE");
}

static void make_file(struct object *object) {
    CREATE3args arguments = {.where = where(object), .how = {.mode = GUARDED}};
    arguments.how.createhow3_u.g_obj_attributes = mode(0644);
    queued(rpc_nfs3_create_async(rpc, created, &arguments, object), "CREATE");
}

/* What a listing finds. */
static struct list found_directories, found_files;

static void list_from(struct object *directory, uint64_t cookie, const char *verifier);

static void listed(struct rpc_context *, int status, void *data, void *argument) {
    struct object *directory = argument;
    check("READDIRPLUS", directory->name, status, data);
    READDIRPLUS3resok *result = &((READDIRPLUS3res *)data)->READDIRPLUS3res_u.resok;
    uint64_t cookie = 0;
    for (entryplus3 *entry = result->reply.entries; entry; entry = entry->nextentry) {
        cookie = entry->cookie;
        if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
            continue;
        if (!entry->name_attributes.attributes_follow || !entry->name_handle.handle_follows)
            fail("READDIRPLUS %s: an entry without attributes or handle", directory->name);
        fattr3 *attributes = &entry->name_attributes.post_op_attr_u.attributes;
        bool is_directory = attributes->type == NF3DIR;
        struct object *object = add(is_directory ? &found_directories : &found_files, directory, entry->name);
        object->is_directory = is_directory;
        object->size = attributes->size;
        nfs_fh3 *handle = &entry->name_handle.post_op_fh3_u.handle;
        keep(&object->handle, handle->data.data_len, handle->data.data_val);
    }
    if (result->reply.eof)
        in_flight--;
    else
        list_from(directory, cookie, result->cookieverf);
}

static void list_from(struct object *directory, uint64_t cookie, const char *verifier) {
    READDIRPLUS3args arguments =
        {.dir = wire(&directory->handle), .cookie = cookie, .dircount = REPLY_BYTES, .maxcount = REPLY_BYTES};
    memcpy(arguments.cookieverf, verifier, NFS3_COOKIEVERFSIZE);
    queued(rpc_nfs3_readdirplus_async(rpc, listed, &arguments, directory), "READDIRPLUS");
}

static void list_directory(struct object *directory) {
    list_from(directory, 0, (char[NFS3_COOKIEVERFSIZE]){0});
}

/* Lists the tree on the server. */
static void walk(void) {
    found_directories.count = found_files.count = 0;
    each_of(&top, list_directory);
    struct list directories = found_directories;
    each(&directories, list_directory);
    if (found_directories.count != directories.count)
        fail("the listing has other directories");
}

static void have_read(struct rpc_context *, int status, void *data, void *argument) {
    struct object *object = argument;
    check("READ", object->name, status, data);
    READ3resok *result = &((READ3res *)data)->READ3res_u.resok;
    if (!result->eof || result->data.data_len != object->size)
        fail("READ %s: incomplete", object->name);
    object->data = malloc(object->size);
    memcpy(object->data, result->data.data_val, object->size);
    in_flight--;
}

static void read_file(struct object *object) {
    READ3args arguments = {.file = wire(&object->handle), .count = REPLY_BYTES};
    queued(rpc_nfs3_read_async(rpc, have_read, &arguments, object), "READ");
}

static void remove_file(struct object *object) {
    REMOVE3args arguments = {.object = where(object)};
    queued(rpc_nfs3_remove_async(rpc, done, &arguments, object), "REMOVE");
}

static void remove_directory(struct object *object) {
    RMDIR3args arguments = {.object = where(object)};
    queued(rpc_nfs3_rmdir_async(rpc, done, &arguments, object), "RMDIR");
}

static void connected(struct rpc_context *, int status, void *data, void *) {
    if (status != RPC_STATUS_SUCCESS)
        fail("connect: %s", status == RPC_STATUS_ERROR ? (char *)data : "canceled");
    in_flight--;
}

static void mounted(struct rpc_context *, int status, void *data, void *export) {
    check("MNT", export, status, data);
    fhandle3 *handle = &((mountres3 *)data)->mountres3_u.mountinfo.fhandle;
    keep(&root, handle->fhandle3_len, handle->fhandle3_val);
    in_flight--;
}

static void connect_to(const char *server, int port, int program, int version) {
    rpc = rpc_init_context();
    in_flight = 1;
    queued(rpc_connect_port_async(rpc, server, port, program, version, connected, NULL), "connect");
    wait_below(1);
}

static void mount_export(const char *server, int port, int mount_port, char *export) {
    connect_to(server, mount_port, MOUNT_PROGRAM, MOUNT_V3);
    in_flight = 1;
    queued(rpc_mount3_mnt_async(rpc, mounted, export, export), "MNT");
    wait_below(1);
    rpc_destroy_context(rpc);
    connect_to(server, port, NFS_PROGRAM, NFS_V3);
}

static void read_local(struct object *object, const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat status;
    if (!file || fstat(fileno(file), &status) != 0)
        fail("%s: %m", path);
    object->size = status.st_size;
    object->data = malloc(object->size);
    if (object->size > REPLY_BYTES || fread(object->data, 1, object->size, file) != object->size)
        fail("%s: too large, or unreadable", path);
    fclose(file);
}

/* Reads the entries of a local directory, and the data of files. */
static void read_tree(const char *path, struct object *parent, struct list *directories, struct list *files) {
    DIR *stream = opendir(path);
    if (!stream)
        fail("%s: %m", path);
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR)
            read_tree(inner, add(directories, parent, entry->d_name), directories, files);
        else
            read_local(add(files, parent, entry->d_name), inner);
    }
    closedir(stream);
}

static int by_name(const void *left, const void *right) {
    const struct object *a = *(struct object *const *)left, *b = *(struct object *const *)right;
    int order = strcmp(a->parent->name, b->parent->name);
    return order ? order : strcmp(a->name, b->name);
}

static void compare(struct list *files) {
    if (found_files.count != files->count)
        fail("the server has %d files, not %d", found_files.count, files->count);
    qsort(files->items, files->count, sizeof *files->items, by_name);
    qsort(found_files.items, files->count, sizeof *files->items, by_name);
    for (int item = 0; item < files->count; item++) {
        struct object *a = files->items[item], *b = found_files.items[item];
        if (by_name(&a, &b) != 0 || a->size != b->size || memcmp(a->data, b->data, a->size) != 0)
            fail("%s/%s differs", a->parent->name, a->name);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double print_time(const char *work, double started) {
    printf("%s %.3f\n", work, now() - started);
    return now();
}

int main(int count, char **arguments) {
    if (count != 6)
        fail("usage: " NAME " SERVER PORT MOUNT_PORT EXPORT TREE");
    struct list directories = {0}, files = {0};
    read_tree(arguments[5], &top, &directories, &files);

    double started = now();
    mount_export(arguments[1], atoi(arguments[2]), atoi(arguments[3]), arguments[4]);
    each_of(&top, make_directory);
    each(&directories, make_directory);
    each(&files, make_file);
    started = print_time("up", started);

    walk();
    each(&found_files, read_file);
    print_time("down", started);
    compare(&files);

    started = now();
    walk();
    int large = 0;
    for (int item = 0; item < found_files.count; item++)
        large += found_files.items[item]->size > 1024;
    started = print_time("find", started);
    if (large != files.count)
        fail("%d files are larger than 1 KiB, not %d", large, files.count);

    started = now();
    walk();
    each(&found_files, remove_file);
    each(&found_directories, remove_directory);
    each_of(&top, remove_directory);
    print_time("rm", started);
    return 0;
}
