package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// A comparePage shows two runs side by side.
type comparePage struct {
	A, B *comparedRun // nil for one that was not chosen
	Rows []comparedRow
	Diff []diffLine // of the last answers; nil without two runs
	Same bool       // the answers are equal

	Choices []chain // the latest runs
}

// A comparedRun is a run of the page: the responses of a chain.
type comparedRun struct {
	ID    berth.ResponseID
	Bar   runBar
	Input string // what the user said
	Text  string // of the last answer
	Steps []step

	input, output int // tokens
	tools         map[string]int
}

// A comparedRow is a property of two runs.
type comparedRow struct {
	Name, A, B string
	Difference string // "" for none
}

// maxChoices is the number of runs that the page offers.
const maxChoices = 50

// show serves GET /console/compare?a=ID&b=ID.
func (p *comparePage) show(v *visit) error {
	asked := v.r.URL.Query()
	for name, into := range map[string]**comparedRun{"a": &p.A, "b": &p.B} {
		if id := strings.TrimSpace(asked.Get(name)); id != "" {
			run, err := readCompared(v, id)
			if err != nil {
				return err
			}
			*into = run
		}
	}
	if p.A != nil && p.B != nil {
		p.compare()
	} else if err := p.offer(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "compare", "Compare runs", p)
}

// offer reads the latest runs.
func (p *comparePage) offer(v *visit) error {
	found, err := readSummaries(v, url.Values{"limit": {chainsRead}, "order": {"desc"}}, reach{})
	if err != nil {
		return err
	}
	p.Choices = chainsOf(found.Data)
	p.Choices = p.Choices[:min(len(p.Choices), maxChoices)]
	return addChainTitles(v, p.Choices, map[berth.ResponseID]string{})
}

// readCompared reads the run that ends with a response.
func readCompared(v *visit, id string) (*comparedRun, error) {
	v.r.SetPathValue("response", id)
	turns, earlier, err := readTurns(v)
	if err != nil {
		return nil, err
	}
	run := &comparedRun{ID: berth.ResponseID(id), Bar: summaryBar(turns, title(turns), v.formToken()),
		Steps: stepsOf(turns), tools: map[string]int{}}
	run.Bar.Earlier = earlier != ""
	var said []string
	for _, turn := range turns {
		for _, e := range turn.Input {
			if e.Role() == "user" {
				said = append(said, e.Text())
			}
		}
		if turn.Usage != nil {
			run.input += turn.Usage.InputTokens
			run.output += turn.Usage.OutputTokens
		}
		for _, e := range turn.Output {
			if tool := e.Tool(); tool != "" {
				run.tools[tool]++
			}
			if e.Type() == berth.ItemMessage {
				run.Text = e.Text()
			}
		}
	}
	run.Input, run.Text = clip(strings.Join(said, "\n\n"), shownGrowing), clip(run.Text, shownGrowing)
	return run, nil
}

// compare fills the table and the difference of two runs.
func (p *comparePage) compare() {
	a, b := p.A, p.B
	text := func(name, of, other string) {
		row := comparedRow{Name: name, A: of, B: other}
		if of != other {
			row.Difference = "differs"
		}
		p.Rows = append(p.Rows, row)
	}
	number := func(name string, of, other int) {
		p.Rows = append(p.Rows, comparedRow{name, count(of), count(other), signed(count, int64(other-of))})
	}
	text("State", badgeOf(a.Bar.Status).Label, badgeOf(b.Bar.Status).Label)
	text("Model", a.Bar.Model, b.Bar.Model)
	number("Responses", a.Bar.Responses, b.Bar.Responses)
	p.Rows = append(p.Rows, comparedRow{"Duration", took(a.Bar.Took), took(b.Bar.Took),
		signed(func(ms int) string { return took(int64(ms)) }, b.Bar.Took-a.Bar.Took)})
	number("Input tokens", a.input, b.input)
	number("Output tokens", a.output, b.output)
	p.Rows = append(p.Rows, costRow(a.Bar.Cost, b.Bar.Cost))
	tools := maps.Clone(a.tools)
	maps.Copy(tools, b.tools)
	for _, tool := range slices.Sorted(maps.Keys(tools)) {
		number("Calls of "+tool, a.tools[tool], b.tools[tool])
	}
	p.Same = a.Text == b.Text
	p.Diff = diffLines(a.Text, b.Text)
}

// costRow returns the row of the costs of two runs; those without a price are a dash.
func costRow(a, b *berth.Cost) comparedRow {
	shown := func(c *berth.Cost) string {
		if c == nil {
			return "–"
		}
		return money(c)
	}
	row := comparedRow{Name: "Cost", A: shown(a), B: shown(b)}
	if a != nil && b != nil {
		row.Difference = signed(func(n int) string {
			return money(&berth.Cost{Value: berth.Amount(n), Currency: a.Currency})
		}, int64(b.Value-a.Value))
	}
	return row
}

// signed formats a difference with its sign; "" for none.
func signed(format func(int) string, n int64) string {
	switch {
	case n > 0:
		return "+" + format(int(n))
	case n < 0:
		return "−" + format(int(-n))
	}
	return ""
}

// A diffLine is a line of two texts: of both, or of one.
type diffLine struct {
	Mark string // "-" only in the first, "+" only in the second, " " in both
	Text string
}

// maxDiff is the number of lines of a text that is compared line by line. Longer texts are only shown beside each
// other.
const maxDiff = 500

// diffLines returns the shortest change of lines from one text to another; nil if one of them is too long.
func diffLines(from, to string) (all []diffLine) {
	a, b := strings.Split(from, "\n"), strings.Split(to, "\n")
	if len(a) > maxDiff || len(b) > maxDiff {
		return nil
	}
	// common[i][j] is the number of lines in order that a[i:] and b[j:] share.
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, diffLine{" ", a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			all = append(all, diffLine{"-", a[i]})
			i++
		default:
			all = append(all, diffLine{"+", b[j]})
			j++
		}
	}
	return all
}

// Differ returns the number of lines that only one of the answers has.
func (p comparePage) Differ() string {
	n := 0
	for _, l := range p.Diff {
		if l.Mark != " " {
			n++
		}
	}
	return strconv.Itoa(n)
}
