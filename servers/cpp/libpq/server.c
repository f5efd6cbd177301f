// libpq behind libmicrohttpd: a thread for each client, and a pool of connections to PostgreSQL.
#include <arpa/inet.h>
#include <libpq-fe.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { MOST_IDS = 500, ROWS = 20000, MOST_CONNECTIONS = 1024 };

static PGconn *pool[MOST_CONNECTIONS];
static int idle, numbers[ROWS + 1];  // the numbers of the rows, for `cached`
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;

typedef struct {
    unsigned long sum;
    size_t bytes;
} Upload;

static PGconn *take(void) {
    pthread_mutex_lock(&lock);
    while (idle == 0) pthread_cond_wait(&given, &lock);
    PGconn *taken = pool[--idle];
    pthread_mutex_unlock(&lock);
    return taken;
}

static void give(PGconn *back) {
    pthread_mutex_lock(&lock);
    pool[idle++] = back;
    pthread_cond_signal(&given);
    pthread_mutex_unlock(&lock);
}

static PGresult *run(PGconn *pg, const char *statement, int count, const char *const *values) {
    PGresult *result = PQexecPrepared(pg, statement, count, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) return result;
    fprintf(stderr, "%s", PQerrorMessage(pg));
    PQclear(result);
    return NULL;
}

static int number_of(PGconn *pg, int id) {
    char text[16];
    snprintf(text, sizeof text, "%d", id);
    PGresult *row = run(pg, "row", 1, (const char *[]){text});
    int number = row != NULL && PQntuples(row) == 1 ? atoi(PQgetvalue(row, 0, 0)) : -1;
    PQclear(row);
    return number;
}

// Reads up to MOST_IDS integers that are separated by commas. Returns how many there are, or 0 if
// the text is anything else.
static int integers(const char *text, int *found) {
    int count = 0;
    for (char *end; text != NULL && count < MOST_IDS; text = end + 1) {
        found[count++] = strtol(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0')) return 0;
        if (*end == '\0') return count;
    }
    return 0;
}

static void as_json(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        if ((unsigned char)*text < 0x20) fprintf(out, "\\u%04x", *text);
        else fputc(*text, out);
    }
}

static void as_html(FILE *out, const char *text) {
    static const char *special = "&<>\"'", *names[] = {"amp", "lt", "gt", "quot", "#39"};
    for (const char *at; *text != '\0'; text++) {
        if ((at = strchr(special, *text)) != NULL) fprintf(out, "&%s;", names[at - special]);
        else fputc(*text, out);
    }
}

static void worlds(FILE *out, const int *ids, const int *values, int count) {
    for (int i = 0; i < count; i++)
        fprintf(out, "%c{\"id\":%d,\"number\":%d}", i == 0 ? '[' : ',', ids[i], values[i]);
    fputc(']', out);
}

static int by_message(const void *a, const void *b) {
    return strcmp(((const char *const *)a)[1], ((const char *const *)b)[1]);
}

static int fortunes(FILE *out, PGconn *pg, const char *text) {
    PGresult *rows = run(pg, "fortunes", 0, NULL);
    if (rows == NULL) return 0;
    int count = PQntuples(rows);
    const char *all[count + 1][2];
    for (int i = 0; i < count; i++)
        all[i][0] = PQgetvalue(rows, i, 0), all[i][1] = PQgetvalue(rows, i, 1);
    char brought[512];
    snprintf(brought, sizeof brought, "Brought by the request: %s", text);
    all[count][0] = "0", all[count][1] = brought;
    qsort(all, count + 1, sizeof all[0], by_message);
    fputs("<!DOCTYPE html><html><head><title>Fortunes</title></head><body><table>"
          "<tr><th>id</th><th>message</th></tr>", out);
    for (int i = 0; i <= count; i++) {
        fprintf(out, "<tr><td>%s</td><td>", all[i][0]);
        as_html(out, all[i][1]);
        fputs("</td></tr>", out);
    }
    fputs("</table></body></html>", out);
    PQclear(rows);
    return 1;
}

// Writes the response to a request. Returns its status.
static int respond(FILE *out, struct MHD_Connection *client, const char *path, const Upload *upload) {
    const char *value[6], *names[] = {"id", "ids", "numbers", "text", "name", "ms"};
    for (int i = 0; i < 6; i++)
        value[i] = MHD_lookup_connection_value(client, MHD_GET_ARGUMENT_KIND, names[i]);
    int ids[MOST_IDS], changed[MOST_IDS], count = integers(value[1], ids), done = 1;
    int status = MHD_HTTP_OK;
    if (strcmp(path, "/json") == 0 && value[4] != NULL) {
        fputs("{\"message\":\"Hello, ", out), as_json(out, value[4]), fputs("!\"}", out);
    } else if (strcmp(path, "/delay") == 0 && value[5] != NULL) {
        usleep(1000 * atoi(value[5]));
        fprintf(out, "{\"ms\":%d}", atoi(value[5]));
    } else if (strcmp(path, "/upload") == 0) {
        fprintf(out, "{\"bytes\":%zu,\"crc32\":\"%08lx\"}", upload->bytes, upload->sum);
    } else if (strcmp(path, "/cached") == 0 && count > 0) {
        for (int i = 0; i < count && done; i++)
            if ((done = ids[i] > 0 && ids[i] <= ROWS)) changed[i] = numbers[ids[i]];
        if (done) worlds(out, ids, changed, count);
    } else if (strcmp(path, "/db") != 0 && strcmp(path, "/queries") != 0 &&
               strcmp(path, "/updates") != 0 && strcmp(path, "/fortunes") != 0) {
        return MHD_HTTP_NOT_FOUND;
    } else {
        PGconn *pg = take();
        int known = 1;
        for (int i = 0; i < count; i++) known &= (changed[i] = number_of(pg, ids[i])) > 0;
        if (strcmp(path, "/db") == 0 && value[0] != NULL) {
            int number = number_of(pg, atoi(value[0]));
            known = number > 0;
            fprintf(out, "{\"id\":%d,\"number\":%d}", atoi(value[0]), number);
        } else if (strcmp(path, "/queries") == 0 && count > 0) {
            worlds(out, ids, changed, count);
        } else if (strcmp(path, "/updates") == 0 && count > 0 &&
                   integers(value[2], changed) == count) {
            PGresult *done = run(pg, "update", 2, (const char *[]){value[1], value[2]});
            known &= done != NULL;
            PQclear(done);
            worlds(out, ids, changed, count);
        } else if (strcmp(path, "/fortunes") == 0 && value[3] != NULL) {
            known = fortunes(out, pg, value[3]);
        } else {
            done = 0;
        }
        if (!known) status = MHD_HTTP_INTERNAL_SERVER_ERROR;
        give(pg);
    }
    return done ? status : MHD_HTTP_BAD_REQUEST;
}

static enum MHD_Result answer(void *unused, struct MHD_Connection *client, const char *path,
                              const char *method, const char *version, const char *part,
                              size_t *size, void **kept) {
    (void)unused, (void)method, (void)version;
    if (*kept == NULL) return (*kept = calloc(1, sizeof(Upload))) != NULL ? MHD_YES : MHD_NO;
    Upload *upload = *kept;
    if (*size != 0) {
        upload->sum = crc32(upload->sum, (const Bytef *)part, *size);
        upload->bytes += *size;
        *size = 0;
        return MHD_YES;
    }
    char *body;
    size_t length;
    FILE *out = open_memstream(&body, &length);
    int status = respond(out, client, path, upload);
    fclose(out);
    struct MHD_Response *made =
        MHD_create_response_from_buffer(length, body, MHD_RESPMEM_MUST_FREE);
    int is_page = strcmp(path, "/fortunes") == 0;
    MHD_add_response_header(made, "Content-Type",
                            is_page ? "text/html; charset=utf-8" : "application/json");
    enum MHD_Result queued = MHD_queue_response(client, status, made);
    MHD_destroy_response(made);
    return queued;
}

static void ended(void *unused, struct MHD_Connection *client, void **kept,
                  enum MHD_RequestTerminationCode why) {
    (void)unused, (void)client, (void)why;
    free(*kept);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "--version") == 0) {
        printf("libpq %d, libmicrohttpd %s, gcc %s\n", PQlibVersion(), MHD_get_version(), __VERSION__);
        return 0;
    }
    const char *host = getenv("HOST"), *port = getenv("PORT"), *size = getenv("POOL_SIZE");
    for (int i = 0; i < (size ? atoi(size) : 16) && i < MOST_CONNECTIONS; i++) {
        PGconn *pg = PQconnectdb(getenv("DATABASE_URL"));
        PQclear(PQprepare(pg, "row", "SELECT number FROM world WHERE id = $1", 1, NULL));
        PQclear(PQprepare(pg, "fortunes", "SELECT id, message FROM fortune", 0, NULL));
        PQclear(PQprepare(pg, "update",
                          "UPDATE world SET number = new.number FROM unnest("
                          "string_to_array($1, ',')::int[], string_to_array($2, ',')::int[]) "
                          "AS new(id, number) WHERE world.id = new.id", 2, NULL));
        if (PQstatus(pg) != CONNECTION_OK) return fputs(PQerrorMessage(pg), stderr), 1;
        give(pg);
    }
    PGresult *all = PQexec(pool[0], "SELECT id, number FROM world WHERE id <= 20000");
    for (int i = 0; i < PQntuples(all); i++)
        numbers[atoi(PQgetvalue(all, i, 0))] = atoi(PQgetvalue(all, i, 1));
    PQclear(all);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port ? atoi(port) : 0),
                                  .sin_addr.s_addr = inet_addr(host ? host : "127.0.0.1")};
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_TURBO, 0, NULL,
        NULL, answer, NULL, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED, ended,
        NULL, MHD_OPTION_CONNECTION_LIMIT, 20000, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1,
        MHD_OPTION_END);
    if (daemon == NULL) return fprintf(stderr, "cannot listen on port %s\n", port ? port : ""), 1;
    int received;
    sigwait(&term, &received);
    MHD_stop_daemon(daemon);
    return 0;
}
