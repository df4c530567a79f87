package gvisor

import "fmt"

// arguments returns runsc's arguments to create and start the sandbox, or to restore it from an
// image.
func (d *Driver) arguments(s instance, rec record, image string) []string {
	args := []string{
		"--root=" + sealed + "/runsc", // relative, because a socket's path must be short
		"--platform=systrap",
		"--host-uds=create", // the guest creates its socket; connections to the host are forbidden
		"--directfs=false",  // the sentry opens no host files and holds no capabilities
		"--ignore-cgroups",
		"--host-settings=ignore",
		"--allow-suid", // sudo
		"--allow-rootfs-tar-annotation",
		fmt.Sprintf("--overlay2=root:dir=%s,size=%d", s.path(sealed+"/disk"), rec.Limits.Disk),
		"--panic-log=" + s.path("run/log/panic.log"),
	}
	if d.rootless {
		args = append(args, "--rootless", "--network=none") // except lo
	} else {
		args = append(args, "--network=sandbox")
	}
	if image == "" {
		args = append(args, "run")
	} else {
		args = append(args, "restore", "--image-path="+image)
	}
	return append(args, "--detach", "--pid-file="+s.path("pid"), "--bundle="+s.path(sealed), "s")
}
