"""An OpenAI-compatible chat server on this machine, which answers as a script says."""

import contextlib
import http.server
import json
import threading
import time


def completion(text, *, finish_reason="stop"):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return 200, {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


class Server:
    """Answers one reply of the script after the other, and the last one for ever."""

    def __init__(self, script):
        self.requests = []
        self.num_at_once = self.most_at_once = 0
        self.delay = 0.0
        lock = threading.Lock()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    status, answer = script[min(len(server.requests), len(script) - 1)]
                    server.requests.append((self.path, self.headers["Authorization"], body))
                    server.num_at_once += 1
                    server.most_at_once = max(server.most_at_once, server.num_at_once)
                time.sleep(server.delay)
                with lock:
                    server.num_at_once -= 1
                text = answer if isinstance(answer, str) else json.dumps(answer)
                with contextlib.suppress(OSError):  # a client that waited too long is gone
                    self.send_response(status)
                    self.send_header(
                        "Content-Type", "text/html" if text.startswith("<") else "application/json"
                    )
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()
