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

// SealKey encrypts what is in a sealed directory.
type SealKey [64]byte

// NewSealKey returns a random key.
func NewSealKey() SealKey {
	var k SealKey
	rand.Read(k[:]) // never fails
	return k
}

// Seal makes an empty directory one whose content, names included, is encrypted on
// its volume with the key. Only the kernel has the key, unless the caller
// stores it: it does not survive a restart of the machine. Where the file system or
// the kernel cannot do that, the error is errors.ErrUnsupported.
func Seal(dir string, key SealKey) error {
	id, err := AddSealKey(dir, key)
	if err != nil {
		return err
	}
	policy := unix.FscryptPolicyV2{Version: unix.FSCRYPT_POLICY_V2, Contents_encryption_mode: unix.FSCRYPT_MODE_AES_256_XTS,
		Filenames_encryption_mode: unix.FSCRYPT_MODE_AES_256_CTS, Flags: unix.FSCRYPT_POLICY_FLAGS_PAD_32, Master_key_identifier: id}
	if err := ioctl(dir, unix.FS_IOC_SET_ENCRYPTION_POLICY, unsafe.Pointer(&policy)); err != nil {
		return errors.Join(err, removeSealKey(dir, id))
	}
	return nil
}

// AddSealKey gives the kernel the key of directories on the volume of dir, again
// after a restart of the machine.
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

// Unseal takes the key of a sealed directory from the kernel: what was in it cannot
// be read any more, nor can what is left of it on the volume. All of its files must
// be closed, or will be soon. A directory that is not sealed, or is not there, is
// left as it is.
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
		// By way of the directory above: an open descriptor of this one keeps the key.
		err := removeSealKey(filepath.Dir(dir), id)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-time.After(unsealEvery):
		case <-ctx.Done():
			return fmt.Errorf("taking the key of %s away: %w", dir, err)
		}
	}
}

// removeSealKey is EBUSY while files under the key are open.
func removeSealKey(dir string, id [16]byte) error {
	var arg unix.FscryptRemoveKeyArg
	arg.Key_spec.Type = unix.FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER
	copy(arg.Key_spec.U[:], id[:])
	err := ioctl(dir, unix.FS_IOC_REMOVE_ENCRYPTION_KEY, unsafe.Pointer(&arg))
	switch {
	case errors.Is(err, unix.ENOKEY):
		return nil // it was removed before, or the machine restarted
	case err == nil && arg.Removal_status_flags&unix.FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY != 0:
		return &os.PathError{Op: "remove key", Path: dir, Err: unix.EBUSY}
	}
	return err
}

// CanSeal returns nil if directories below dir can be sealed, else why not.
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
