package imagegeneration

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
)

// pictures returns the images that a call edits, and the mask of the tool. It returns none
// for a new image. Errors that are *berth.Error are for the model.
func (c *call) pictures(ctx context.Context) (images []Picture, mask *Picture, err error) {
	t := c.tool
	if t.image.Action == berth.ImageGenerate || t.image.Action != berth.ImageEdit && len(c.images) == 0 {
		return nil, nil, nil
	}
	var all []string
	if t.pictures != nil {
		if all, err = t.pictures.Conversation(ctx); err != nil {
			return nil, nil, err
		}
	}
	numbers := c.images
	if len(numbers) == 0 {
		numbers = []int{-1}
	}
	size := 0
	for _, n := range numbers {
		place := n - 1
		if n < 0 {
			place = len(all) + n
		}
		if place < 0 || place >= len(all) {
			return nil, nil, berth.Invalid("images", "There is no image %d to edit: the conversation has %d.", n,
				len(all))
		}
		picture, err := decode(all[place], fmt.Sprintf("Image %d", place+1))
		if err != nil {
			return nil, nil, err
		}
		if size += len(picture.Content); size > maxEdited {
			return nil, nil, berth.Invalid("images",
				"The images to edit have more than %d bytes together. Edit fewer at once.", maxEdited)
		}
		images = append(images, *picture)
		if c.item.Berth == nil {
			c.item.Berth = &berth.ImageGenerationBerth{}
		}
		c.item.Berth.Images = append(c.item.Berth.Images, place+1)
	}
	mask, err = c.mask(ctx)
	return images, mask, err
}

// mask returns the mask of the tool, or nil.
func (c *call) mask(ctx context.Context) (*Picture, error) {
	source := c.tool.image.InputImageMask
	if source == nil {
		return nil, nil
	}
	url := source.ImageURL
	if source.FileID != "" && c.tool.pictures != nil {
		var err error
		if url, err = c.tool.pictures.File(ctx, source.FileID); err != nil {
			return nil, err
		}
	}
	return decode(url, "The mask")
}

// decode returns the image of a data: URL. what names it in errors.
func decode(url, what string) (*Picture, error) {
	rest, ok := strings.CutPrefix(url, "data:")
	head, data, found := strings.Cut(rest, ",")
	media, encoded := strings.CutSuffix(head, ";base64")
	if !ok || !found || !encoded {
		return nil, berth.Invalid("images",
			"%s is a link, which this server does not follow. It can be edited if it is sent as a file or as a data: URL.",
			what)
	}
	switch media {
	case "image/png", "image/jpeg", "image/webp":
	default:
		return nil, berth.Invalid("images", "%s cannot be edited: it must be PNG, JPEG or WebP.", what)
	}
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, berth.Invalid("images", "%s is not valid base64.", what)
	}
	return &Picture{MediaType: media, Content: content}, nil
}
