package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/longtest"
)

// fullPrograms are tasks for what the template "full" has beyond base. Each prints ok.
var fullPrograms = []struct{ name, code string }{
	{"LibreOffice",
		`!printf '<p>Tides</p>' > a.html && soffice --headless --convert-to odt a.html >/dev/null 2>&1 && soffice --headless --convert-to pdf a.odt >/dev/null 2>&1 && head -c 4 a.pdf | grep -q PDF && echo ok`},
	{"poppler", `!pdftotext a.pdf - | grep -q Tides && pdftoppm -r 60 -png a.pdf page && ls page-1.png >/dev/null && echo ok`},
	{"qpdf, Ghostscript",
		`!qpdf --check a.pdf >/dev/null && gs -q -sDEVICE=txtwrite -o - a.pdf | grep -q Tides && echo ok`},
	{"pandoc", `!printf '# Tides\n' | pandoc -o a.docx && pandoc a.docx -t plain | grep -q Tides && echo ok`},
	{"ImageMagick, Tesseract",
		`!convert -size 500x100 xc:white -font DejaVu-Sans -pointsize 48 -fill black -annotate +20+70 'High water' w.png && tesseract w.png - 2>/dev/null | grep -q 'High water' && echo ok`},
	{"ImageMagick reads PDF", `!convert -density 60 'a.pdf[0]' b.png && file b.png | grep -q PNG && echo ok`},
	{"ffmpeg", `!ffmpeg -loglevel error -f lavfi -i testsrc=d=1:s=64x64:r=5 -y a.mp4 && ffprobe -v error -show_entries stream=codec_type a.mp4 | grep -q video && echo ok`},
	{"rsvg, Graphviz", `!echo 'digraph{a->b}' | dot -Tsvg | rsvg-convert | file - | grep -q PNG && echo ok`},
	{"fonts", `!fc-list | grep -q 'Noto Sans CJK' && fc-list | grep -q 'Liberation' && fc-list | grep -q Emoji && echo ok`},
	{"Go", "!printf 'package main\\nfunc main() { println(\"ok\") }' > a.go && go run a.go 2>&1"},
	{"Java", "!printf 'class A { public static void main(String[] a) { System.out.println(\"ok\"); } }' > A.java && java A.java"},
	{"C, C++", `!printf '#include <iostream>\nint main() { std::cout << "ok"; }' > a.cc && g++ a.cc -o a && ./a`},
	{"Ruby, PHP, Node.js",
		`!ruby -e 'print "o"' && php -r 'echo "k";' && node -e 'console.log("")' && npm --version >/dev/null && echo ok`},
	{"Python", `import sklearn, seaborn, statsmodels.api, plotly, networkx, sympy, reportlab, pptx, pdfplumber, pytesseract, html5lib, markdown
print('ok' if 'Tides' in pdfplumber.open('a.pdf').pages[0].extract_text() else 'no')`},
	{"R", "%%kernel ir\nlibrary(ggplot2)\nlibrary(dplyr)\ncat('ok')"},
	{"R draws", "%%kernel ir\nprint(ggplot(mtcars, aes(mpg, hp)) + geom_point())\ncat('ok')"},
	{"bash", "%%kernel bash\nx=o\necho ${x}k"},
	{"JavaScript", "%%kernel javascript\nlet x: string = 'o'\nconsole.log(x + 'k')"},
	{"vim, 7z", `!vim.tiny --version | head -1 | grep -qi vim && 7z i >/dev/null && echo ok`},
}

// TestFullTemplate uses every program of the template "full" in a sandbox. It builds the
// template, which takes minutes and 6 GB of disk, unless BERTH_TEST_FULL is a state
// directory that has it.
func TestFullTemplate(t *testing.T) {
	longtest.Skip(t)
	state := os.Getenv("BERTH_TEST_FULL")
	if state == "" {
		state = t.TempDir()
		if _, errs, err := (&server{t: t, state: state}).berth("image", "build", "full"); err != nil {
			t.Fatal(err, errs)
		}
	}
	t.Setenv("BERTH_TEST_STATE", state)
	s := newServerWith(t, "template: full\n")
	previous := ""
	for _, p := range fullPrograms {
		task := codeTask(previous, p.code)
		// for four kernels at a time
		task.Tools[0].OfCodeInterpreter.Container.OfCodeInterpreterToolAuto.MemoryLimit = "4g"
		r, all := runTask(t, s, task, 1)
		previous = r.ID
		if got := strings.TrimSpace(all[0].logs()); !strings.HasSuffix(got, "ok") {
			t.Errorf("%s: %.400s", p.name, got)
		}
	}
}
