"""Small servers for tests, in this process: S3, WebDAV and WebHDFS, each with files in memory and with
the faults that a test asks for. As strict as the parts of the protocols that are used."""

import contextlib
import email.utils
import hashlib
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape


class Server:
    """What all of them have: a port, files by path, a list of what was asked for."""

    def __init__(self, handler):
        self.files = {}
        self.dirs = set()
        self.times = {}
        # What is said of the length of a file instead of it.
        self.lengths = {}
        self.clock = 1_700_000_000
        self.asked = []
        self.lock = threading.RLock()
        # Called with (method, path, range) before a file is given; may change files or raise Dead.
        self.before_get = None
        # Connections are cut without a word.
        self.is_dead = False
        self.authorization = None
        self.environment = {}
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (handler,), {"server_of": self}))
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def put(self, path, data):
        with self.lock:
            self.clock += 1
            self.files[path] = bytes(data)
            self.times[path] = self.clock

    def count(self, method, part=""):
        with self.lock:
            return sum(one == method and part in path for one, path in self.asked)

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Dead(Exception):
    """The server dies while it answers."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of = None

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        with contextlib.suppress(ConnectionError, Dead):
            super().handle_one_request()
            return
        self.close_connection = True

    def __getattr__(self, name):
        if name.startswith("do_"):
            return lambda: self.take(name[3:])
        raise AttributeError(name)

    def take(self, method):
        server = self.server_of
        url = urllib.parse.urlsplit(self.path)
        self.where = urllib.parse.unquote(url.path)
        self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        with server.lock:
            server.asked.append((method, self.path))
        if server.is_dead:
            self.close_connection = True
            self.connection.close()
            raise Dead
        self.serve(method, body)

    def answer(self, status, body=b"", **headers):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def meet(self, path, begin, end, status):
        """What a file is when a range of it is given; a server that dies gives half of that."""
        server = self.server_of
        try:
            if server.before_get:
                server.before_get(self.where, begin, end)
        except Dead:
            server.is_dead = True
            self.send_response(status)
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            self.wfile.write(server.files[path][begin : begin + (end - begin) // 2])
            self.wfile.flush()
            self.connection.close()
            raise
        with server.lock:
            return server.files[path]

    def give(self, data, begin, end, status, **headers):
        """A range of a file."""
        if status == 206:
            headers["Content_Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        self.answer(status, data[begin:end], **headers)

    def range(self, data):
        """What is asked for: begin, end and the status of the answer."""
        text = self.headers.get("Range")
        if not text:
            return 0, len(data), 200
        begin, _, end = text.removeprefix("bytes=").partition("-")
        return int(begin), min(int(end) + 1 if end else len(data), len(data)), 206

    def time(self, path):
        return email.utils.formatdate(self.server_of.times.get(path, 1_700_000_000), usegmt=True)


class S3Handler(Handler):
    def error(self, status, code):
        text = f"<Error><Code>{code}</Code><Message>said the test</Message></Error>"
        self.answer(status, text, Content_Type="application/xml")

    def serve(self, method, body):
        server = self.server_of
        wanted = server.authorization
        if wanted and f"Credential={wanted}/" not in self.headers.get("Authorization", ""):
            return self.error(403, "InvalidAccessKeyId")
        _, bucket, *rest = self.where.split("/", 2)
        key = rest[0] if rest else ""
        if bucket != "bucket":
            return self.error(404, "NoSuchBucket")
        if method == "GET" and not key:
            return self.list()
        with server.lock:
            data = server.files.get(key)
        if method in ("GET", "HEAD"):
            return self.get(key, data)
        if method == "PUT":
            return self.put(key, body)
        if method == "POST" and "uploads" in self.query:
            number = f"upload-{len(server.uploads)}"
            server.uploads[number] = {}
            return self.answer(
                200,
                f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId>"
                "</InitiateMultipartUploadResult>",
            )
        if method == "POST" and "uploadId" in self.query:
            parts = server.uploads.pop(self.query["uploadId"])
            with server.lock:
                server.put(key, b"".join(parts[number] for number in sorted(parts)))
                digests = b"".join(hashlib.md5(parts[n]).digest() for n in sorted(parts))
                server.etags[key] = f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"'
            return self.answer(
                200,
                f"<CompleteMultipartUploadResult><ETag>{server.etags[key]}</ETag>"
                "</CompleteMultipartUploadResult>",
            )
        if method == "POST" and "delete" in self.query:
            return self.answer(400, "not spoken here")
        if method == "DELETE":
            if "uploadId" in self.query:
                server.uploads.pop(self.query["uploadId"], None)
            else:
                server.files.pop(key, None)
            return self.answer(204)
        return self.error(405, "MethodNotAllowed")

    def etag(self, key, data):
        return self.server_of.etags.get(key) or f'"{hashlib.md5(data).hexdigest()}"'

    def get(self, key, data):
        if data is None:
            return self.answer(404) if self.command == "HEAD" else self.error(404, "NoSuchKey")
        begin, end, status = self.range(data)
        if self.command == "GET":
            data = self.meet(key, begin, end, status)
        etag = self.etag(key, data)
        headers = {"ETag": etag, "Last_Modified": self.time(key)}
        if self.headers.get("If-Match", etag) != etag:
            return self.error(412, "PreconditionFailed")
        if self.command == "HEAD":
            return self.answer(200, Content_Length=str(len(data)), **headers)
        return self.give(data, begin, end, status, **headers)

    def put(self, key, body):
        server = self.server_of
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        if "uploadId" in self.query:
            server.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = body
        else:
            if server.spoils:
                body = body[:-1] + b"?"
                etag = f'"{hashlib.md5(body).hexdigest()}"'
            server.put(key, body)
            server.etags.pop(key, None)
        return self.answer(200, ETag=etag)

    def list(self):
        server, prefix = self.server_of, self.query.get("prefix", "")
        delimiter = self.query.get("delimiter", "")
        after = self.query.get("continuation-token", "")
        limit = int(self.query.get("max-keys", 1000))
        found = {}
        with server.lock:
            for key in sorted(server.files):
                if not key.startswith(prefix):
                    continue
                rest = key[len(prefix) :]
                if delimiter and delimiter in rest:
                    found.setdefault(prefix + rest.split(delimiter)[0] + delimiter)
                else:
                    found[key] = server.files[key]
        names = [name for name in sorted(found) if name > after]
        page, more = names[:limit], len(names) > limit
        text = "<ListBucketResult>"
        text += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            text += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        for name in page:
            if found[name] is None:
                text += f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            else:
                text += (
                    f"<Contents><Key>{escape(name)}</Key><Size>{len(found[name])}</Size>"
                    f"<LastModified>2023-11-14T22:13:20.000Z</LastModified>"
                    f"<ETag>{escape(self.etag(name, found[name]))}</ETag></Contents>"
                )
        self.answer(200, text + "</ListBucketResult>", Content_Type="application/xml")


class S3(Server):
    """One bucket, 'bucket'."""

    def __init__(self):
        self.uploads = {}
        self.etags = {}
        self.spoils = False
        super().__init__(S3Handler)
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "test-secret-never-said",
            "AWS_REGION": "us-east-1",
        }

    def url(self, prefix=""):
        return f"s3://bucket/{prefix}"


class WebDavHandler(Handler):
    def serve(self, method, body):
        server = self.server_of
        path = self.where.rstrip("/")
        if server.authorization and self.headers.get("Authorization") != server.authorization:
            return self.answer(401, "who are you?")
        with server.lock:
            is_dir, data = path in server.dirs, server.files.get(path)
        above = path.rpartition("/")[0]
        if method == "PROPFIND":
            return self.look(path, is_dir, data)
        if method == "GET" and data is not None:
            begin, end, status = self.range(data)
            return self.give(self.meet(path, begin, end, status), begin, end, status)
        if method == "PUT" and above in server.dirs:
            server.put(path, body)
            return self.answer(201)
        if method == "MKCOL":
            status = 405 if is_dir or data is not None else 201 if above in server.dirs else 409
            if status == 201:
                server.dirs.add(path)
            return self.answer(status)
        if method == "MOVE" and data is not None:
            to = urllib.parse.unquote(urllib.parse.urlsplit(self.headers["Destination"]).path)
            server.put(to, server.files.pop(path))
            return self.answer(201)
        if method == "DELETE" and (is_dir or data is not None):
            server.files.pop(path, None)
            server.dirs.discard(path)
            return self.answer(204)
        return self.answer(409 if method == "PUT" else 404)

    def look(self, path, is_dir, data):
        server = self.server_of
        if not is_dir and data is None:
            return self.answer(404)
        paths = [path]
        if self.headers.get("Depth") == "1" and is_dir:
            with server.lock:
                every = [*server.files, *server.dirs]
            paths += [p for p in every if p and p.rpartition("/")[0] == path]
        text = '<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">'
        for one in paths:
            href = escape(urllib.parse.quote(one or "/"))
            if one in server.dirs:
                kind, href = "<D:resourcetype><D:collection/></D:resourcetype>", href.rstrip("/") + "/"
            else:
                length = server.lengths.get(one, len(server.files[one]))
                kind = f"<D:resourcetype/><D:getcontentlength>{length}</D:getcontentlength>"
            text += (
                f"<D:response><D:href>{href}</D:href><D:propstat><D:prop>{kind}"
                f"<D:getlastmodified>{self.time(one)}</D:getlastmodified></D:prop>"
                "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            )
        return self.answer(207, text + "</D:multistatus>", Content_Type="application/xml")


class WebDav(Server):
    """A server with one directory, '/dav'."""

    def __init__(self):
        super().__init__(WebDavHandler)
        self.dirs = {"", "/dav"}

    def url(self, prefix=""):
        return f"webdav://127.0.0.1:{self.port}/dav/{prefix}"


class WebHdfsHandler(Handler):
    def json(self, value, status=200):
        self.answer(status, json.dumps(value), Content_Type="application/json")

    def serve(self, method, body):
        server, op = self.server_of, self.query.get("op")
        path = self.where.removeprefix("/webhdfs/v1").rstrip("/")
        if self.query.get("user.name") != "hadoop":
            return self.json({"RemoteException": {"message": "who are you?"}}, 401)
        with server.lock:
            is_dir, data = path in server.dirs, server.files.get(path)
        node = f"http://127.0.0.1:{server.port}{urllib.parse.quote(self.where)}?"
        node += urllib.parse.urlencode({**self.query, "node": "1"})
        missing = {"RemoteException": {"exception": "FileNotFoundException", "message": path}}
        if op == "MKDIRS":
            while path:
                server.dirs.add(path)
                path = path.rpartition("/")[0]
            return self.json({"boolean": True})
        if op in ("CREATE", "APPEND") and "node" not in self.query:
            return self.json({"Location": node})
        if op == "CREATE":
            server.put(path, body)
            return self.answer(201)
        if not is_dir and data is None:
            return self.json(missing, 404)
        if op == "APPEND":
            server.put(path, data + body)
            return self.answer(200)
        if op == "GETFILESTATUS":
            return self.json({"FileStatus": self.status(path, path)})
        if op == "LISTSTATUS":
            names = [p for p in [*server.files, *server.dirs] if p and p.rpartition("/")[0] == path]
            found = [self.status(p, p.rpartition("/")[2]) for p in names]
            return self.json({"FileStatuses": {"FileStatus": found}})
        if op == "OPEN":
            begin = int(self.query.get("offset", 0))
            end = min(begin + int(self.query.get("length", len(data))), len(data))
            return self.give(self.meet(path, begin, end, 200), begin, end, 200)
        if op == "RENAME" and self.query.get("renameoptions") == "OVERWRITE":
            server.put(self.query["destination"], server.files.pop(path))
            return self.answer(200)
        if op == "DELETE":
            server.files.pop(path, None)
            server.dirs.discard(path)
            return self.json({"boolean": True})
        return self.json({"RemoteException": {"message": f"{op} is not spoken here"}}, 400)

    def status(self, path, name):
        server = self.server_of
        is_dir = path in server.dirs
        return {
            "accessTime": 0,
            "blockSize": 0,
            "group": "g",
            "length": 0 if is_dir else len(server.files[path]),
            "modificationTime": server.times.get(path, 0) * 1000,
            "owner": "o",
            "pathSuffix": name,
            "permission": "755",
            "replication": 1,
            "type": "DIRECTORY" if is_dir else "FILE",
        }


class WebHdfs(Server):
    """A name node that is its own data node, with one directory, '/data'."""

    def __init__(self):
        super().__init__(WebHdfsHandler)
        self.environment = {"HADOOP_USER_NAME": "hadoop"}
        self.dirs = {"", "/data"}

    def url(self, prefix=""):
        return f"webhdfs://127.0.0.1:{self.port}/data/{prefix}"


ROOTS = {S3: "", WebDav: "/dav/", WebHdfs: "/data/"}


def place(server, path):
    """Where a server keeps what its address has at a path."""
    return ROOTS[type(server)] + path


def fill(server, files):
    """Puts files there, with the directories above them."""
    for path, data in files.items():
        at = place(server, path)
        server.put(at, data)
        while not isinstance(server, S3) and at:
            at = at.rpartition("/")[0]
            server.dirs.add(at)
