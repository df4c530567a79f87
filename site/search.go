package site

import (
	"encoding/json"
	"fmt"
	"strings"
)

// searchIndex returns the script that hands the texts of all sections to the search: for each its address, the title of
// its page, its own title and its text. It is a script because a page that was opened as a file may load no other data.
func (s *Site) searchIndex() ([]byte, error) {
	rows := [][4]string{}
	for _, e := range s.nav.order {
		if e.Source == "" {
			continue
		}
		p, err := s.render(e.Source)
		if err != nil {
			return nil, err
		}
		for _, sec := range p.sections {
			address := e.Path
			if sec.fragment != "" {
				address += "#" + sec.fragment
			}
			rows = append(rows, [4]string{address, p.Title, sec.title, strings.Join(strings.Fields(sec.text), " ")})
		}
	}
	for _, r := range s.manual.Routes() {
		text := r.Method + " " + r.Path + " " + r.Section
		rows = append(rows, [4]string{apiDir + r.Address, "API reference", r.Summary, text})
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return nil, fmt.Errorf("write the index of the search: %w", err)
	}
	return append(append([]byte("berthIndex("), text...), ");\n"...), nil
}
