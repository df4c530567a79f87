package console

import (
	"strconv"
	"strings"

	"rsc.io/qr"
)

// A qrCode is a QR code as a path of SVG, whose squares have a side of 1.
type qrCode struct {
	Width int // with the margin
	Path  string
}

// newQRCode returns the QR code of a text; nil for one that is too long.
func newQRCode(text string) *qrCode {
	const margin = 4 // squares, as readers need it
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return nil
	}
	var path strings.Builder
	for y := range code.Size {
		for x := 0; x < code.Size; x++ {
			if !code.Black(x, y) {
				continue
			}
			start := x
			for x+1 < code.Size && code.Black(x+1, y) {
				x++
			}
			path.WriteString("M" + strconv.Itoa(start+margin) + " " + strconv.Itoa(y+margin) + "h" +
				strconv.Itoa(x-start+1) + "v1h-" + strconv.Itoa(x-start+1) + "z")
		}
	}
	return &qrCode{code.Size + 2*margin, path.String()}
}
