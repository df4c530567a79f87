package desktop

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/jpeg"
)

// MaxImage is the maximum size of a screenshot in bytes.
const MaxImage = 2 << 20

// encode returns pixels of a screen, which have four bytes each, as a PNG image, or as a JPEG
// image if that would be too large.
func encode(pixels []byte, width, height int) ([]byte, error) {
	out, err := encodePNG(pixels, width, height)
	if err != nil || len(out) <= MaxImage {
		return out, err
	}
	for _, quality := range []int{85, 60, 30} {
		if out, err = encodeJPEG(pixels, width, height, quality); err != nil || len(out) <= MaxImage {
			return out, err
		}
	}
	return nil, fmt.Errorf("the screenshot has %d bytes; %d are allowed", len(out), MaxImage)
}

// encodePNG is faster than image/png: it does not try filters. Of a screen, most lines are
// like the line above, so all lines have the filter "up".
func encodePNG(pixels []byte, width, height int) ([]byte, error) {
	var data bytes.Buffer
	data.Grow(256 << 10)
	z, err := zlib.NewWriterLevel(&data, zlib.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("compress screenshot: %w", err)
	}
	line := make([]byte, 1+3*width)
	line[0] = 2
	above := make([]byte, 4*width)
	for y := range height {
		row := pixels[4*width*y : 4*width*(y+1)]
		for i, o := 0, 1; i < len(row); i, o = i+4, o+3 {
			line[o], line[o+1], line[o+2] = row[i+2]-above[i+2], row[i+1]-above[i+1], row[i]-above[i]
		}
		above = row
		if _, err := z.Write(line); err != nil {
			return nil, fmt.Errorf("compress screenshot: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress screenshot: %w", err)
	}
	out := append(make([]byte, 0, data.Len()+64), "\x89PNG\r\n\x1a\n"...)
	header := binary.BigEndian.AppendUint32(nil, uint32(width))
	header = binary.BigEndian.AppendUint32(header, uint32(height))
	out = chunk(out, "IHDR", append(header, 8, 2, 0, 0, 0)) // 8 bits, colours without opacity
	out = chunk(out, "IDAT", data.Bytes())
	return chunk(out, "IEND", nil), nil
}

// chunk appends a chunk of PNG.
func chunk(out []byte, kind string, data []byte) []byte {
	out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
	start := len(out)
	out = append(append(out, kind...), data...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[start:]))
}

func encodeJPEG(pixels []byte, width, height, quality int) ([]byte, error) {
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := 0; i < len(img.Pix); i += 4 {
		img.Pix[i], img.Pix[i+1], img.Pix[i+2], img.Pix[i+3] = pixels[i+2], pixels[i+1], pixels[i], 255
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, img, &jpeg.Options{Quality: quality}); err != nil {
		return nil, fmt.Errorf("encode screenshot: %w", err)
	}
	return out.Bytes(), nil
}
