package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/templates"
)

// CheckTemplate looks for the default template in a state directory, without making one.
func CheckTemplate(state string, c *config.Config) (image.Template, Finding) {
	f := Finding{What: "template"}
	dir := filepath.Join(state, "images")
	var store *image.Store
	_, err := os.Stat(dir) // image.Open would create it
	if errors.Is(err, fs.ErrNotExist) {
		err = image.ErrNotFound
	} else if err == nil {
		store, err = image.Open(dir, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		var t image.Template
		if t, err = templates.Default(c, store); err == nil {
			f.OK, f.Detail = true, fmt.Sprintf("%s %.19s, %d MB", t.Name, t.Digest, t.Bytes>>20)
			return t, f
		}
	}
	f.Detail = err.Error()
	if building := templates.BuildStatusOf(state); building != nil && errors.Is(err, image.ErrNotFound) {
		f.Detail = building.String()
		if building.Failed == "" {
			f.Advice = "containers start when it is ready; the server's log says when"
			return image.Template{}, f
		}
	} else if errors.Is(err, image.ErrNotFound) && store == nil {
		f.Detail = "there is none yet"
	}
	if errors.Is(err, image.ErrNotFound) {
		f.Fix = config.InState(state, "image", "pull", templates.PulledByDefault, "--name", c.Template)
		if templates.CanBuild() {
			f.Fix = config.InState(state, "image", "build", c.Template)
		}
		if _, standard := image.Standard()[c.Template]; templates.CanBuild() && !standard {
			f.Fix, f.Advice = nil, "the configuration names it: build or pull it under this name, or name another one"
		}
	}
	return image.Template{}, f
}
