"""Two apps for tests, without dependencies: `hostile_app.py PORT` answers with a secret and prints the path of each
request; `hostile_app.py PORT TARGET` serves a page that tries to read the other one's.
"""

from __future__ import annotations

import http.server
import sys

PAGE = """<!DOCTYPE html><title>trying</title><body><script>
const target = TARGET, got = {};
const element = (kind, set) => {
    const made = Object.assign(document.createElement(kind), set);
    document.body.append(made);
    return made;
};
const loaded = (kind, set) => new Promise((ok, no) => {
    const made = element(kind, {...set, onerror: no, onload: () => ok(made)});
});
const within = frame => frame.contentDocument.body.innerText;
const attempts = {
    fetch: async () => (await fetch(target + 'fetch', {credentials: 'include'})).text(),
    opaque: async () => (await fetch(target + 'opaque', {credentials: 'include', mode: 'no-cors'})).text(),
    post: async () => (await fetch(target + 'post', {credentials: 'include', method: 'POST'})).text(),
    image: async () => (await loaded('img', {src: target + 'image'})).width,
    script: async () => (await loaded('script', {src: target + 'script'})).src,
    style: async () => (await loaded('link', {rel: 'stylesheet', href: target + 'style'})).sheet,
    frame: async () => within(await loaded('iframe', {src: target + 'frame'})),
    form: async () => {
        const frame = element('iframe', {name: 'answer'});
        element('form', {method: 'POST', action: target + 'form', target: 'answer'}).submit();
        await new Promise(ok => { frame.onload = ok; });
        return within(frame);
    },
    socket: () => new Promise((ok, no) => {
        const socket = new WebSocket(target.replace('https', 'wss') + 'socket');
        Object.assign(socket, {onopen: () => ok('open'), onmessage: event => ok(event.data), onerror: no});
    }),
    events: () => new Promise((ok, no) => {
        const events = new EventSource(target + 'events', {withCredentials: true});
        Object.assign(events, {onopen: () => ok('open'), onmessage: event => ok(event.data), onerror: no});
    }),
    worker: async () => (await navigator.serviceWorker.register(target + 'worker')).scope,
    opened: async () => {
        const opened = window.open(target + 'opened');
        await new Promise(ok => setTimeout(ok, 3000));
        return opened.document.body.innerText;
    },
    opener: async () => window.opener.document.body.innerText,
};
(async () => {
    for (const [name, attempt] of Object.entries(attempts)) {
        const late = new Promise(ok => setTimeout(ok, 8000, ''));
        try { got[name] = String(await Promise.race([attempt(), late])); } catch { got[name] = ''; }
    }
    const domain = location.hostname.replace(/^[^.]*[.]/, '');
    for (const name of ['COOKIE', '__Host-COOKIE', '__Secure-COOKIE']) {
        for (const place of [`Domain=${domain}; Path=/`, `Domain=${domain}; Path=/s/`]) {
            document.cookie = `${name}=tossed; Secure; ${place}`;
        }
    }
    document.title = 'done';
})();
</script></body>
"""


class Victim(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        print(self.path, flush=True)
        self.reply(b"window.secret = 'secret of the session'", "text/javascript")

    def do_POST(self) -> None:
        self.do_GET()

    def reply(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Write no log but the paths."""


class Hostile(Victim):
    def do_GET(self) -> None:
        self.reply(PAGE.encode(), "text/html")


if len(sys.argv) > 2:
    PAGE = PAGE.replace("TARGET", repr(sys.argv[2]), 1).replace("COOKIE", "backendai")
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Hostile if len(sys.argv) > 2 else Victim).serve_forever()
