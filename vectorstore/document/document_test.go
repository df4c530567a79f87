package document

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/jail"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/vectorstore"
)

// The test binary is also the child: the real one is the berth program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == Command {
		if os.Args[2] == ".attack" {
			os.Exit(attack())
		}
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func read(t *testing.T, name string, content []byte) (string, error) {
	t.Helper()
	return Text(t.Context(), Child{CPU: 10}, name, bytes.NewReader(content))
}

// archived returns a zip archive of files.
func archived(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// page returns a PDF with a text. Its cross-reference table is exact.
func page(s string) []byte {
	var b bytes.Buffer
	var at []int
	object := func(body string) {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", len(at), body)
	}
	b.WriteString("%PDF-1.4\n")
	stream := "BT /F1 12 Tf 72 720 Td (" + s + ") Tj ET"
	object("<< /Type /Catalog /Pages 2 0 R >>")
	object("<< /Type /Pages /Kids [3 0 R] /Count 1 >>")
	object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>")
	object(fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(stream), stream))
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, offset := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, xref)
	return b.Bytes()
}

func TestText(t *testing.T) {
	docx := archived(t,
		map[string]string{"word/document.xml": `<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>The north</w:t><w:tab/><w:t> quay</w:t></w:r></w:p><w:p><w:r><w:t>is &amp; stays</w:t></w:r></w:p></w:body></w:document>`})
	pptx := archived(t, map[string]string{"ppt/slides/slide2.xml": `<a:p xmlns:a="a"><a:t>second</a:t></a:p>`,
		"ppt/slides/slide1.xml":  `<a:p xmlns:a="a"><a:t>first</a:t></a:p>`,
		"ppt/slides/slide10.xml": `<a:p xmlns:a="a"><a:t>tenth</a:t></a:p>`})
	xlsx := archived(t,
		map[string]string{"xl/sharedStrings.xml": `<sst><si><t>name</t></si><si><r><t>kn</t></r><r><t>ot</t></r></si></sst>`,
			"xl/worksheets/sheet1.xml": `<worksheet><sheetData><row><c t="s"><v>0</v></c><c t="s"><v>1</v></c><c><v>42</v></c></row><row><c t="inlineStr"><is><t>in</t></is></c></row></sheetData></worksheet>`})
	entities := archived(t,
		map[string]string{"ppt/slides/slide1.xml": `<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><a:t>&b;&b;</a:t>`})
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"a.md":  {[]byte("# Grüße\n"), "# Grüße\n"},
		"a.go":  {[]byte("package a"), "package a"},
		"b.txt": {[]byte("\xff\xfea\x00b\x00"), "ab"},
		"c.txt": {[]byte("caf\xe9"), "café"},
		"a.html": {[]byte("<title>T</title><script>var no</script><p>One <b>bold</b>\n word<p>Two<pre>a  b</pre>"),
			"\nT\n\nOne bold word\nTwo\na  b\n"},
		"a.docx": {docx, "The north\t quay\nis & stays\n\n"},
		"a.pptx": {pptx, "first\n\nsecond\n\ntenth\n\n"},
		"b.pptx": {entities, "&b;&b;\n\n"}, // not expanded
		"a.XLSX": {xlsx, "name\tknot\t42\t\nin\t\n"},
		"a.pdf":  {page("High water at noon"), "High water at noon\n\n"},
	} {
		got, err := read(t, name, tc.content)
		if err != nil || strings.TrimSpace(got) != strings.TrimSpace(tc.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// raceDetector reports whether this is a build with the race detector, which makes parsers
// several times slower.
var raceDetector bool

// What has no text, or is made to harm, is an error for the client: that of the defence
// which is meant to refuse it.
func TestHostileDocuments(t *testing.T) {
	const word = "word/document.xml"
	// under the race detector they exceed the child's limits first
	large := []string{"text.docx", "bomb.docx", "endless.html"}
	text := archived(t, map[string]string{word: "<w:t>" + strings.Repeat("a", maxText+10) + "</w:t>"})
	bomb := archived(t, map[string]string{word: strings.Repeat("<x>"+strings.Repeat(" ", 1<<20)+"</x>",
		maxUnpacked>>20)})
	if len(bomb) > 2<<20 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	// pages that contain themselves
	loop := []byte(strings.Replace(string(page("x")), "/Kids [3 0 R] /Count 1", "/Kids [2 0 R] /Count 9", 1))
	for name, tc := range map[string]struct {
		content []byte
		want    string // the start of the message
	}{
		"text.docx": {text, "The file has more than 50331648 bytes of text."},
		"bomb.docx": {bomb, "The file unpacks to more than 268435456 bytes."},
		"slip.docx": {archived(t, map[string]string{"../../word/document.xml": "x", "/word/document.xml": "y"}),
			"The file is not a document of its type: it has no text part."},
		"empty.xlsx": {archived(t, map[string]string{"x": "y"}), "The file is not a workbook: it has no sheet."},
		"not.docx":   {[]byte("text"), "The file is not a document of its type: zip: "},
		"cut.pdf": {page("hello")[:200],
			"The file is not a PDF that can be read: not a PDF file: missing %%EOF."},
		"loop.pdf": {loop, "The file could not be read with 768 MB of memory in 10 seconds."},
		"garbage.pdf": {append(append([]byte("%PDF-1.7\n"), bytes.Repeat([]byte{0xfe, '<', '<'}, 5000)...),
			"\nstartxref\n9\n%%EOF\n"...), "The file is not a PDF that can be read: "},
		"old.doc": {[]byte("text"), "Files of type '.doc' are not supported."},
		"program": {[]byte("\x7fELF\x00\x01"), "Files of type '' are not supported."},
		"endless.html": {[]byte(strings.Repeat("<pre>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1_200_000)),
			"The file has more than 50331648 bytes of text."},
		"onetoken.html": {[]byte("<p " + strings.Repeat("a", 20<<20)),
			"The page could not be read: max buffer exceeded."},
	} {
		got, err := read(t, name, tc.content)
		unreadable, ok := errors.AsType[*vectorstore.Unreadable](err)
		if ok && raceDetector && slices.Contains(large, name) && strings.HasPrefix(unreadable.Message,
			"The file could not be read with 768 MB") {
			continue
		}
		if !ok || !strings.HasPrefix(unreadable.Message, tc.want) {
			t.Errorf("%s: got %.40q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// Deep nesting costs neither stack nor time.
func TestDeepHTML(t *testing.T) {
	got, err := read(t, "deep.html", []byte(strings.Repeat("<div>", 2_000_000)+"found"))
	if err != nil || !strings.HasSuffix(got, "found") {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// attack tries what a parser under foreign control would. It returns 0 if all is refused.
func attack() int {
	secret := os.Getenv("SECRET_FILE")
	if err := jail.Enter(jail.Limits{CPU: 10, Memory: childMemory}); err != nil {
		fmt.Println("jail.Enter:", err)
		return 1
	}
	bad := 0
	refuse := func(what string, err error) {
		if err == nil {
			fmt.Println(what, "is allowed")
			bad++
		}
	}
	_, err := os.ReadFile(secret)
	refuse("reading a file", err)
	_, err = os.ReadFile("/etc/passwd")
	refuse("reading /etc/passwd", err)
	_, err = os.Create("/tmp/berth-attack")
	refuse("creating a file", err)
	_, err = net.Dial("tcp", os.Getenv("LISTENER"))
	refuse("a connection", err)
	_, err = net.Listen("tcp", "127.0.0.1:0")
	refuse("listening", err)
	refuse("a program", exec.Command("/bin/true").Run())
	_, err = os.FindProcess(os.Getppid())
	refuse("a signal", errors.Join(err, kill(os.Getppid())))
	return bad
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(os.Interrupt)
}

// A parser under foreign control reaches no file, no network and no process.
func TestChildIsLockedDown(t *testing.T) {
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command("/proc/self/exe", Command, ".attack")
	cmd.Env = []string{"SECRET_FILE=" + secret, "LISTENER=" + l.Addr().String()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Each of many files is read: a child that gave up its privileges on two threads failed in one
// of 900 starts.
func TestManyChildren(t *testing.T) {
	longtest.Skip(t)
	starts := make(chan struct{}, 6)
	for range 5000 {
		starts <- struct{}{}
		go func() {
			if got, err := Text(t.Context(), Child{CPU: 10}, "a.html", strings.NewReader("<p>calm")); err != nil ||
				strings.TrimSpace(got) != "calm" {
				t.Errorf("got %q, %v", got, err)
			}
			<-starts
		}()
	}
	for range cap(starts) {
		starts <- struct{}{}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(".html", []byte("<p>a<script>"))
	f.Add(".docx", []byte("PK\x03\x04"))
	f.Fuzz(func(t *testing.T, extension string, content []byte) {
		if parsers[extension] == nil || len(content) > 1<<16 || extension == ".pdf" {
			return // FuzzPDF has a child, because PDF may loop
		}
		_, _ = parse(extension, content)
	})
}

// Whatever a PDF makes of its parser, the server gets a text or an error for the client, and
// the child ends within its second of CPU.
func FuzzPDF(f *testing.F) {
	whole := page("High water at noon")
	f.Add(whole)
	random := rand.New(rand.NewPCG(1, 2))
	for range 24 { // seeds that an ordinary test reads as well
		damaged := bytes.Clone(whole)
		for range 1 + random.IntN(6) {
			damaged[random.IntN(len(damaged))] = "0123456789<>[]()/ R%\xff"[random.IntN(21)]
		}
		f.Add(damaged)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<16 {
			return
		}
		got, err := Text(t.Context(), Child{CPU: 1}, "a.pdf", bytes.NewReader(content))
		if err == nil {
			if len(got) > maxText {
				t.Errorf("got %d bytes of text", len(got))
			}
			return
		}
		if reason, ok := errors.AsType[*vectorstore.Unreadable](err); !ok || reason.Code == "" || reason.Message == "" {
			t.Errorf("got %v", err)
		}
	})
}
