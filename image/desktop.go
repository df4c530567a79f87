package image

import (
	"embed"
	"slices"
)

// desktopFiles are the programs and settings of the template "desktop".
//
//go:embed desktop
var desktopFiles embed.FS

// Desktop returns the recipe of the template "desktop": base with a graphical desktop that programs
// and people use. Its programs are also those that E2B's SDK for desktops runs.
func Desktop() Recipe {
	r := Base()
	r.Name = "desktop"
	r.Packages = slices.Concat(r.Packages, []string{
		"xvfb", "openbox", "tint2", "xterm", "chromium", "x11vnc", "novnc", "websockify", // for Berth
		"xfce4-session", "xfwm4", "xfdesktop4", "dbus-x11", // for E2B's SDK
		"xdotool", "scrot", "xclip", "x11-utils", "x11-xserver-utils", "xdg-utils", "libgtk-3-bin", "net-tools",
		"fonts-liberation2", "fonts-noto-color-emoji", "fonts-wqy-microhei",
	})
	for _, f := range []struct {
		name, path string
		mode       uint32
	}{
		{"berth-desktop", "/usr/local/bin/berth-desktop", 0o755},
		{"berth-desktop-view", "/usr/local/bin/berth-desktop-view", 0o755},
		{"view.html", "/usr/share/berth-desktop/index.html", 0o644},
		{"tint2rc", "/etc/xdg/tint2/tint2rc", 0o644},
		{"chromium", "/etc/chromium.d/berth", 0o644},
		{"policies.json", "/etc/chromium/policies/managed/berth.json", 0o644},
	} {
		text, err := desktopFiles.ReadFile("desktop/" + f.name)
		if err != nil {
			panic(err) // each file is embedded
		}
		r.Files = append(r.Files, File{Path: f.path, Mode: f.mode, Content: string(text)})
	}
	r.Env = append(r.Env, "DISPLAY=:0")
	r.Run = append([]string{
		"ln -s /usr/share/novnc /usr/share/berth-desktop/novnc",
		"ln -s /usr/share/novnc /opt/noVNC", // where E2B's SDK looks for it
	}, r.Run...)
	return r
}
