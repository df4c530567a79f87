// Command chart renders a Helm chart with Helm's own engine and prints its objects as JSON, one a line:
//
//	chart [-namespace NAME] [-release NAME] [-api-version VERSION]… [-values FILE] [-set KEY=VALUE]… CHART
//
// It fails unless the values satisfy the chart's schema, Helm's linter finds nothing, and each object
// decodes strictly into Kubernetes' own type: no unknown, misspelled or repeated field.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// custom are kinds that the cluster's own types do not have.
var custom = map[string]bool{"ServiceMonitor": true}

func main() {
	namespace := flag.String("namespace", "default", "namespace of the release")
	release := flag.String("release", "release", "name of the release")
	file := flag.String("values", "", "file of values")
	values := map[string]any{}
	cluster := chartutil.DefaultCapabilities.Copy()
	flag.Func("api-version", "a version of an API that the cluster has beside its own", func(s string) error {
		cluster.APIVersions = append(cluster.APIVersions, s)
		return nil
	})
	flag.Func("set", "one value", func(s string) error { return strvals.ParseInto(s, values) })
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *namespace, *release, *file, values, cluster, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(dir, namespace, release, file string, set map[string]any, cluster *chartutil.Capabilities, out io.Writer) error {
	values := map[string]any{}
	if file != "" {
		read, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return fmt.Errorf("read values: %w", err)
		}
		values = read
	}
	values = chartutil.CoalesceTables(set, values) // set wins
	c, err := loader.Load(dir)
	if err != nil {
		return fmt.Errorf("load chart: %w", err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, cluster)
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return fmt.Errorf("render: %w", err)
	}
	for _, m := range lint.All(dir, values, namespace, true).Messages {
		if m.Severity > support.InfoSev {
			return fmt.Errorf("lint: %s: %w", m.Path, m.Err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".txt" || strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		if err := check(strings.NewReader(files[name]), out); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, files[name])
		}
	}
	return nil
}

// check decodes objects strictly and writes them.
func check(in io.Reader, out io.Writer) error {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLOrJSONDecoder(in, 4096)
	encoder := json.NewEncoder(out)
	for n := 1; ; n++ {
		var raw runtime.RawExtension
		err := documents.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
			continue
		}
		var head struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(raw.Raw, &head); err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if !custom[head.Kind] {
			if _, _, err := strict.Decode(raw.Raw, nil, nil); err != nil {
				return fmt.Errorf("document %d, %s: %w", n, head.Kind, err)
			}
		}
		if err := encoder.Encode(json.RawMessage(raw.Raw)); err != nil {
			return fmt.Errorf("write document %d: %w", n, err)
		}
	}
}
