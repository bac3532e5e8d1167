"""Plays histories with two clients of the Python library: {url, token, history, directory} a line in, {steps, rows} a line out."""

import json
import sys
import urllib.request

import turso.sync

WHOLE = (
    "SELECT 't', id, coalesce(a, 'NULL'), coalesce(b, 'NULL') FROM t ORDER BY id",
    "SELECT 'u', id, name, coalesce(v, 'NULL') FROM u ORDER BY id",
    "SELECT 'd', ino, chunk, hex(data) FROM d ORDER BY ino, chunk",
)


def attempt(work):
    try:
        work()
        return "done"
    except Exception:  # What a step fails with is each engine's own; that it fails is what is compared.
        return "failed"


def write(client, statements):
    client.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            client.execute(statement)
        client.execute("COMMIT")
    except Exception:
        client.execute("ROLLBACK")
        raise


def in_cloud(task, statement):
    body = json.dumps({"requests": [{"type": "execute", "stmt": {"sql": statement}}]}).encode()
    headers = {"authorization": f"Bearer {task['token']}", "content-type": "application/json"}
    request = urllib.request.Request(f"{task['url']}/v2/pipeline", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        if json.load(response)["results"][0]["type"] != "ok":
            raise RuntimeError("refused")


def play(task):
    clients = [
        turso.sync.connect(f"{task['directory']}/{name}.db", task["url"], auth_token=task["token"], client_name=name, isolation_level=None)
        for name in ("zero", "one")
    ]
    steps = []
    for step in task["history"]:
        if step["kind"] == "cloud":
            steps.append(attempt(lambda: in_cloud(task, step["statement"])))
            continue
        client = clients[step["client"]]
        if step["kind"] == "write":
            steps.append(attempt(lambda: write(client, step["statements"])))
        else:
            steps.append(attempt(getattr(client, step["kind"])))
    for _ in range(3):
        for client in clients:
            for call in (client.pull, client.push, client.pull):
                steps.append(attempt(call))
    rows = [["|".join(map(str, row)) for sql in WHOLE for row in client.execute(sql).fetchall()] for client in clients]
    for client in clients:
        client.close()
    return {"steps": steps, "rows": rows}


for line in sys.stdin:
    print(json.dumps(play(json.loads(line))), flush=True)
