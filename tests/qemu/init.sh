#!/bin/busybox sh
# First program of the test machine, from the initramfs: finds the images and leaves for a root on tmpfs. A root on
# tmpfs, not the initramfs itself, because pivot_root refuses to leave the latter.
b=/bin/busybox
fail() { $b echo "init: $*"; $b reboot -f; }
$b mount -t proc proc /proc && $b mount -t sysfs sysfs /sys && $b mount -t devtmpfs dev /dev || fail "no /dev"
for module in /modules/*.ko; do
    $b insmod $module || $b echo "init: $module does not load"
done
tries=0
until test -b /dev/vda && test -b /dev/vdb && test -b /dev/vdc; do
    tries=$((tries + 1)); test $tries -lt 200 || fail "no disks"
    $b usleep 50000
done
$b mount -t tmpfs -o mode=755,size=75% root /new || fail "no tmpfs"
cd /new && $b mkdir -p usr carrel etc var/tmp var/lib run tmp home root proc sys dev mnt || fail "no directories"
$b chmod 1777 tmp var/tmp && $b chmod 700 root
for name in bin sbin lib lib64; do $b ln -s usr/$name $name; done
# The order of virtio disks is not that of the command line.
for disk in /dev/vda /dev/vdb /dev/vdc; do
    if $b mount -t squashfs -o ro $disk carrel 2>/dev/null; then continue; fi
    $b mount -t ext4 -o ro $disk mnt || fail "$disk does not mount"
    if test -d mnt/bin; then target=usr options=ro; else target=var/tmp options=nosuid,nodev; fi
    $b umount mnt && $b mount -t ext4 -o $options $disk $target || fail "$disk does not mount on /$target"
done
$b chmod 1777 var/tmp
$b mount --move /proc proc && $b mount --move /sys sys && $b mount --move /dev dev || fail "no /dev any more"
exec $b switch_root /new /bin/bash /carrel/tests/qemu/guest.sh </dev/console >/dev/console 2>&1
