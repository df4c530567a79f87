// Command gen writes the demo's data set: two years of daily counts from three
// bike counters of a city that does not exist. It is deterministic: the seasons,
// the weather and the dirt in it come from a fixed seed.
package main

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"time"
)

func main() {
	w := bufio.NewWriter(os.Stdout)
	defer w.Flush()
	r := rand.New(rand.NewPCG(7, 2024))
	fmt.Fprintln(w, "date,counter,bikes,temperature_c,rain_mm")
	for day := time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2025; day = day.AddDate(0, 0, 1) {
		season := -math.Cos(2 * math.Pi * float64(day.YearDay()-15) / 365)
		temperature := 10.5 + 9*season + r.NormFloat64()*3
		rain := math.Max(0, r.NormFloat64()*6-3)
		for i, counter := range []string{"Harbour Bridge", "North Gate", "University"} {
			row(w, r, day, i, counter, season, temperature, rain)
		}
	}
}

// row writes one count, and now and then what real files have: a gap, a word, a
// line twice, a counter that fell over.
func row(w *bufio.Writer, r *rand.Rand, day time.Time, i int, counter string, season, temperature, rain float64) {
	bikes := []float64{2600, 1700, 1300}[i] * (1 + 0.45*season) * math.Exp(-rain/14) * (1 + r.NormFloat64()*0.07)
	if wd := day.Weekday(); wd == time.Saturday || wd == time.Sunday {
		bikes *= []float64{0.9, 0.55, 0.35}[i]
	}
	if counter == "University" && (day.Month() == time.August || day.Month() == time.March && day.Day() < 15) {
		bikes *= 0.45
	}
	bikes *= 1 + 0.12*float64(day.Year()-2023)
	count := fmt.Sprintf("%.0f", bikes)
	switch n := r.IntN(400); {
	case n < 4:
		count = ""
	case n < 6:
		count = "n/a"
	case n < 7:
		count = "-1"
	}
	line := fmt.Sprintf("%s,%s,%s,%.1f,%.1f", day.Format(time.DateOnly), counter, count, temperature, rain)
	fmt.Fprintln(w, line)
	if r.IntN(300) == 0 {
		fmt.Fprintln(w, line)
	}
}
