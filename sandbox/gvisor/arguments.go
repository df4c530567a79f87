package gvisor

import "fmt"

// arguments returns runsc's, to create and start the sandbox, or restore it from an
// image.
func (d *Driver) arguments(s instance, rec record, image string) []string {
	args := []string{
		"--root=" + sealed + "/runsc", // relative, to stay below the length of a socket's path
		"--platform=systrap",
		"--host-uds=create", // the guest binds its socket; connections out are forbidden
		"--directfs=false",  // the sentry opens no host files and holds no capabilities
		"--ignore-cgroups",
		"--host-settings=ignore",
		"--allow-suid", // sudo
		"--allow-rootfs-tar-annotation",
		fmt.Sprintf("--overlay2=root:dir=%s,size=%d", s.path(sealed+"/disk"), rec.Limits.Disk),
		"--panic-log=" + s.path("run/log/panic.log"),
	}
	if d.rootless {
		args = append(args, "--rootless", "--network=none") // but lo
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
