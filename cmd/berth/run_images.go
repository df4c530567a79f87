package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth"
)

// An itemImage is an image in an item of a response, which is not a file of a container.
type itemImage struct {
	extension string // such as ".png"
	encoded   string // in base64
}

// imageExtensions are the extensions of the media types that images are saved with; others are not saved, because a
// sandbox chooses the type.
var imageExtensions = map[string]string{"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}

// itemImages returns the images that code displayed or a model drew, in order.
func itemImages(r *berth.Response) []itemImage {
	var images []itemImage
	for _, it := range r.Output {
		switch it.Type() {
		case berth.ItemCodeInterpreterCall:
			var c berth.CodeInterpreterCall
			if it.Decode(&c) != nil {
				continue
			}
			for _, out := range c.Outputs {
				head, encoded, ok := strings.Cut(strings.TrimPrefix(out.URL, "data:"), ";base64,")
				if extension := imageExtensions[head]; ok && out.Type == "image" && extension != "" {
					images = append(images, itemImage{extension, encoded})
				}
			}
		case berth.ItemImageGenerationCall:
			var c berth.ImageGenerationCall
			if it.Decode(&c) != nil || c.Result == nil {
				continue
			}
			if extension := imageExtensions["image/"+c.OutputFormat]; extension != "" {
				images = append(images, itemImage{extension, *c.Result})
			}
		}
	}
	return images
}

// images saves the images of a response as image-1.png and so on, beside the files of its container.
func (o *outDir) images(root *os.Root, r *berth.Response) error {
	number, failed := 0, 0
	for _, image := range itemImages(r) {
		number++
		name := imageName(number, image)
		for o.saved[name] { // a file of the container
			number++
			name = imageName(number, image)
		}
		n, err := o.saveImage(root, name, image)
		if err != nil {
			failed++
			fmt.Fprintf(os.Stderr, "  %s  not saved: %s\n", name, inLine(err.Error()))
			continue
		}
		fmt.Fprintf(os.Stderr, "  %s  %d bytes\n", inLine(filepath.Join(o.dir, name)), n)
	}
	if failed > 0 {
		return fmt.Errorf("%d images were not saved", failed)
	}
	return nil
}

func imageName(number int, image itemImage) string {
	return fmt.Sprintf("image-%d%s", number, image.extension)
}

func (o *outDir) saveImage(root *os.Root, name string, image itemImage) (int64, error) {
	content, err := base64.StdEncoding.DecodeString(image.encoded)
	if err != nil {
		return 0, fmt.Errorf("decode the image: %w", err)
	}
	return saveIn(root, name, bytes.NewReader(content), 0o666, o.force)
}
