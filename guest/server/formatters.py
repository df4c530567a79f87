def _berth_formatters(shell):
    """Adds the media types e2b/data, of data frames, and e2b/chart, of figures of matplotlib."""
    import math
    import re

    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    class Data(BaseFormatter):
        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_e2b_data_")
        _return_type = dict

    class Chart(BaseFormatter):
        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_e2b_chart_")
        _return_type = dict

        def lookup(self, obj):
            # Not for_type_by_name: matplotlib's inline backend removes figures from all formatters.
            if any((c.__module__, c.__name__) == ("matplotlib.figure", "Figure") for c in type(obj).__mro__):
                return figure
            return super().lookup(obj)

    def plain(v):
        """Returns a value as JSON has it: dates in ISO 8601, no NaN."""
        if hasattr(v, "item"):
            v = v.item() if getattr(v, "dtype", None) is None or v.dtype.kind != "M" else str(v)
        if v is None or isinstance(v, (bool, int, str)):
            return v
        if isinstance(v, float):
            return v if math.isfinite(v) else None
        if hasattr(v, "isoformat"):
            text = v.isoformat()
            return None if text == "NaT" else text
        return str(v)

    def rounded(v):
        """Rounds a number to fewer digits the larger it is, as E2B does: the angles of matplotlib are not exact."""
        return round(v, 7 - 2 * math.floor(math.log10(v))) if v > 0 else v

    def frame(df):
        if df.size > 100_000:
            return None
        return {str(name): [plain(v) for v in df.iloc[:, i].tolist()] for i, name in enumerate(df.columns)}

    def unit(label):
        found = re.search(r"\(([^)]+)\)\s*$", label or "")
        return found.group(1) if found else None

    def scale(axis, name):
        kind = type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__
        if "Date" in kind:
            return "datetime"
        return "categorical" if "Category" in kind else name

    def value(axis, kind, v):
        if kind == "datetime" and isinstance(plain(v), (int, float)):
            from matplotlib.dates import num2date

            return num2date(v).isoformat()
        return plain(v)

    def ticks(axis, kind):
        low, high = sorted(axis.get_view_interval())
        at = [t for t in axis.get_majorticklocs() if low <= t <= high]
        return [value(axis, kind, t) for t in at], list(axis.get_major_formatter().format_ticks(at))

    def name(artist):
        label = str(artist.get_label() or "")
        return "" if label.startswith("_") else label

    def tick_label(axis, at):
        places = list(axis.get_majorticklocs())
        labels = axis.get_major_formatter().format_ticks(places)
        for place, label in zip(places, labels):
            if abs(place - at) < 1e-9:
                return label
        return str(plain(at))

    def boxes(ax):
        """Returns the boxes of a box plot, found by their shapes, or nothing."""
        from matplotlib.patches import PathPatch

        lines = [(list(map(float, l.get_xdata(orig=False))), list(map(float, l.get_ydata(orig=False))), l.get_linestyle()) for l in ax.lines]
        rectangles = [(xs, ys) for xs, ys, _ in lines if len(xs) == 5 and xs[0] == xs[-1] and ys[0] == ys[-1]]
        for p in ax.patches:
            if isinstance(p, PathPatch):
                points = p.get_path().vertices
                rectangles.append(([float(x) for x, _ in points], [float(y) for _, y in points]))
        found = []
        for xs, ys in rectangles:
            for upright in (True, False):
                across, along = (xs, ys) if upright else (ys, xs)
                centre, q1, q3 = (min(across) + max(across)) / 2, min(along), max(along)
                ends, fliers, median = [], [], None
                for lx, ly, style in lines:
                    a, b = (lx, ly) if upright else (ly, lx)
                    if not a or any(abs(v - centre) > 1e-9 for v in a):
                        if len(a) == 2 and b[0] == b[1] and abs((a[0] + a[1]) / 2 - centre) < 1e-9 and q1 <= b[0] <= q3:
                            width = abs(a[1] - a[0])
                            if abs(width - (max(across) - min(across))) < 1e-6:
                                median = b[0]
                    elif style in ("None", "", " "):
                        fliers += b
                    elif len(a) == 2:
                        ends += b
                if len(ends) >= 4 and median is not None:
                    axis = ax.xaxis if upright else ax.yaxis
                    found.append({"label": tick_label(axis, centre), "min": min(ends), "first_quartile": q1, "median": median,
                                  "third_quartile": q3, "max": max(ends), "outliers": fliers})
                    break
        return found

    def bars(ax, containers):
        out = []
        for c in containers:
            flat = c.orientation == "horizontal"
            axis = ax.yaxis if flat else ax.xaxis
            for p in c.patches:
                at = p.get_y() + p.get_height() / 2 if flat else p.get_x() + p.get_width() / 2
                out.append({"label": tick_label(axis, at), "group": name(c), "value": plain(float(p.get_width() if flat else p.get_height()))})
        return out

    def chart_of(ax):
        from matplotlib.collections import PathCollection
        from matplotlib.container import BarContainer
        from matplotlib.patches import Wedge

        title = ax.get_title() or None
        wedges = [p for p in ax.patches if isinstance(p, Wedge)]
        if wedges:
            return {"type": "pie", "title": title, "elements": [
                {"label": name(w), "angle": rounded(abs(float(w.theta2 - w.theta1))), "radius": float(w.r)} for w in wedges]}
        xl, yl = ax.get_xlabel() or None, ax.get_ylabel() or None
        out = {"type": "unknown", "title": title, "elements": [], "x_label": xl, "y_label": yl, "x_unit": unit(xl), "y_unit": unit(yl)}
        containers = [c for c in ax.containers if isinstance(c, BarContainer) and len(c.patches)]
        if containers:
            out.update(type="bar", elements=bars(ax, containers))
            return out
        found = boxes(ax)
        if found:
            out.update(type="box_and_whisker", elements=found)
            return out
        xs, ys = scale(ax.xaxis, ax.get_xscale()), scale(ax.yaxis, ax.get_yscale())
        points = lambda data: [[value(ax.xaxis, xs, x), value(ax.yaxis, ys, y)] for x, y in data]  # noqa: E731
        dots = [c for c in ax.collections if isinstance(c, PathCollection)]
        if dots:
            out.update(type="scatter", elements=[{"label": name(c), "points": points(c.get_offsets().tolist())} for c in dots])
        elif ax.lines:
            out.update(type="line", elements=[{"label": name(l), "points": points(zip(list(l.get_xdata()), list(l.get_ydata())))} for l in ax.lines])
        out["x_ticks"], out["x_tick_labels"] = ticks(ax.xaxis, xs)
        out["y_ticks"], out["y_tick_labels"] = ticks(ax.yaxis, ys)
        out["x_scale"], out["y_scale"] = xs, ys
        return out

    def figure(fig):
        try:
            charts = [chart_of(ax) for ax in fig.axes if ax.has_data()]
        except Exception:  # an unusual figure is shown as an image only
            return None
        if len(charts) < 2:
            return charts[0] if charts else None
        title = getattr(fig, "_suptitle", None)
        return {"type": "superchart", "title": title.get_text() if title else None, "elements": charts}

    def show_images(module):
        """Makes images of Pillow results when the code shows them or saves them to a path."""
        from IPython.display import display

        save = module.Image.save

        def save_and_show(self, fp, *args, **options):
            save(self, fp, *args, **options)
            if isinstance(fp, (str, bytes)) or hasattr(fp, "__fspath__"):
                display(self)

        module.Image.save = save_and_show
        module.Image.show = lambda self, *args, **options: display(self)

    def when_imported(name, then):
        """Calls then with the module when the code imports it first: an import takes time that most code does not need."""
        import sys
        from importlib.machinery import PathFinder

        if name in sys.modules:
            then(sys.modules[name])
            return

        class Finder:
            @staticmethod
            def find_spec(wanted, path=None, target=None):
                spec = PathFinder.find_spec(wanted, path, target) if wanted == name else None
                if spec is None or spec.loader is None:
                    return None
                run = spec.loader.exec_module

                def run_then(module):
                    run(module)
                    sys.meta_path.remove(Finder)
                    then(module)

                spec.loader.exec_module = run_then
                return spec

        sys.meta_path.insert(0, Finder)

    when_imported("PIL.Image", show_images)
    formatters = shell.display_formatter.formatters
    data, chart = Data(parent=shell.display_formatter), Chart(parent=shell.display_formatter)
    data.for_type_by_name("pandas.core.frame", "DataFrame", frame)
    data.for_type_by_name("pandas", "DataFrame", frame)
    formatters[data.format_type], formatters[chart.format_type] = data, chart


_berth_formatters(get_ipython())
del _berth_formatters
