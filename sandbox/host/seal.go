package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A SealKey encrypts the files in a sealed directory.
type SealKey [64]byte

// NewSealKey returns a random key.
func NewSealKey() SealKey {
	var k SealKey
	rand.Read(k[:]) // never fails
	return k
}

// Seal makes an empty directory encrypt its content, including names, on the volume. Only the
// kernel has the key, unless the caller stores it, and forgets it at a restart of the machine.
// If the file system or the kernel does not support this, Seal returns errors.ErrUnsupported.
func Seal(dir string, key SealKey) error {
	id, err := AddSealKey(dir, key)
	if err != nil {
		return err
	}
	policy := unix.FscryptPolicyV2{Version: unix.FSCRYPT_POLICY_V2,
		Contents_encryption_mode:  unix.FSCRYPT_MODE_AES_256_XTS,
		Filenames_encryption_mode: unix.FSCRYPT_MODE_AES_256_CTS, Flags: unix.FSCRYPT_POLICY_FLAGS_PAD_32,
		Master_key_identifier: id}
	if err := ioctl(dir, unix.FS_IOC_SET_ENCRYPTION_POLICY, unsafe.Pointer(&policy)); err != nil {
		return errors.Join(err, removeSealKey(dir, id))
	}
	return nil
}

// AddSealKey adds the key of directories on the volume of dir to the kernel, for example after
// a restart of the machine.
func AddSealKey(dir string, key SealKey) (id [16]byte, err error) {
	arg := struct {
		unix.FscryptAddKeyArg
		raw SealKey
	}{raw: key}
	arg.Key_spec.Type = unix.FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER
	arg.Raw_size = uint32(len(key))
	if err := ioctl(dir, unix.FS_IOC_ADD_ENCRYPTION_KEY, unsafe.Pointer(&arg)); err != nil {
		return id, err
	}
	return [16]byte(arg.Key_spec.U[:]), nil
}

const (
	unsealTime  = 10 * time.Second
	unsealEvery = 10 * time.Millisecond
)

// Unseal removes the key of a sealed directory from the kernel: its files, and their remains on
// the volume, cannot be read any more. All of the files must be closed, or close soon. Unseal
// does nothing if the directory is missing or not sealed.
func Unseal(ctx context.Context, dir string) error {
	policy := unix.FscryptGetPolicyExArg{Size: uint64(len(unix.FscryptGetPolicyExArg{}.Policy))}
	err := ioctl(dir, unix.FS_IOC_GET_ENCRYPTION_POLICY_EX, unsafe.Pointer(&policy))
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.ENODATA) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unsealTime)
	defer cancel()
	id := (*unix.FscryptPolicyV2)(unsafe.Pointer(&policy.Policy)).Master_key_identifier
	for {
		// The parent directory is used, because an open descriptor of dir would retain the key.
		err := removeSealKey(filepath.Dir(dir), id)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-time.After(unsealEvery):
		case <-ctx.Done():
			return fmt.Errorf("remove the key of %s: %w", dir, err)
		}
	}
}

// removeSealKey removes a key. It returns EBUSY while files encrypted with it are open.
func removeSealKey(dir string, id [16]byte) error {
	var arg unix.FscryptRemoveKeyArg
	arg.Key_spec.Type = unix.FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER
	copy(arg.Key_spec.U[:], id[:])
	err := ioctl(dir, unix.FS_IOC_REMOVE_ENCRYPTION_KEY, unsafe.Pointer(&arg))
	switch {
	case errors.Is(err, unix.ENOKEY):
		return nil // removed before, or the machine was restarted
	case err == nil && arg.Removal_status_flags&unix.FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY != 0:
		return &os.PathError{Op: "remove key", Path: dir, Err: unix.EBUSY}
	}
	return err
}

// CanSeal returns nil if directories below dir can be sealed, and otherwise the reason.
func CanSeal(dir string) error {
	probe, err := os.MkdirTemp(dir, ".seal-")
	if err != nil {
		return err
	}
	defer os.Remove(probe)
	if err := Seal(probe, NewSealKey()); err != nil {
		return err
	}
	return Unseal(context.Background(), probe)
}

func ioctl(dir string, request uintptr, arg unsafe.Pointer) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg))
	switch errno {
	case 0:
		return nil
	case unix.ENOTTY, unix.EOPNOTSUPP, unix.ENOPKG:
		return &os.PathError{Op: "encrypt", Path: dir, Err: errors.ErrUnsupported}
	}
	return &os.PathError{Op: "encrypt", Path: dir, Err: errno}
}
