"""Analyses a CSV file in a container and saves the chart that was drawn there."""

import os
import struct
from pathlib import Path

from openai import OpenAI

TASK = "Compute the monthly totals of sales.csv. Draw a bar chart of them, 640 x 480 pixels, as chart.png. Print the totals."

# What the model "scripted" runs. A language model gets the task only.
STEPS = """
```sh
cat >totals.py <<'END'
import matplotlib.pyplot as plt
import pandas as pd

sales = pd.read_csv("sales.csv", parse_dates=["date"])
totals = sales.groupby(sales["date"].dt.strftime("%Y-%m"))["amount"].sum()
totals.plot.bar(title="Sales by month", rot=0)
plt.savefig("chart.png", dpi=100)
for month, total in totals.items():
    print(month, total)
END
python3 totals.py
```
"""

model = os.environ.get("BERTH_MODEL", "scripted")
client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)

upload = client.files.create(file=Path(__file__).with_name("sales.csv"), purpose="user_data")
response = client.responses.create(
    model=model,
    input=TASK + STEPS if model == "scripted" else TASK,
    tools=[{"type": "shell", "environment": {"type": "container_auto", "file_ids": [upload.id]}}],
)
print(response.output_text)

container = response.tools[0].environment.container_id
paths = {f.path: f.id for f in client.containers.files.list(container)}
chart = client.containers.files.content.retrieve(paths["/mnt/data/chart.png"], container_id=container).read()
assert chart.startswith(b"\x89PNG\r\n"), "chart.png is not an image"
width, height = struct.unpack(">II", chart[16:24])
print(f"chart.png: PNG, {width} x {height}")
Path("chart.png").write_bytes(chart)

client.containers.delete(container)
client.files.delete(upload.id)
