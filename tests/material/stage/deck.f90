! Reads an input deck as old programs do: list-directed, by a namelist, by formats, by records, backwards.
program deck
  implicit none
  integer, parameter :: most = 4000
  integer :: count, line, status, flags(3), length
  real(8) :: values(most), total
  complex(8) :: corner
  logical :: is_there, is_on
  character(len=300) :: place, word, text
  integer :: steps
  real(8) :: width
  character(len=40) :: title
  namelist /run/ steps, width, title

  call get_command_argument(1, place)
  inquire(file=trim(place)//'/deck.txt', exist=is_there, size=length)
  print '(a,l2,i8)', 'deck', is_there, length
  inquire(file=trim(place)//'/nothing.txt', exist=is_there)
  print '(a,l2)', 'nothing', is_there
  open(unit=10, file=trim(place)//'/deck.txt', status='old', action='read')
  read(10, *) word, count, flags, is_on, corner
  print '(2a,4i6,l2,2f8.3)', trim(word), ':', count, flags, is_on, corner
  read(10, *) values(1:count)
  print '(a,es22.14)', 'sum', sum(values(1:count))
  read(10, nml=run)
  print '(i6,f10.4,2a)', steps, width, ' ', trim(title)
  backspace(10)
  read(10, '(a)') text
  print '(a)', trim(text)
  rewind(10)
  line = 0
  do
    read(10, '(a)', iostat=status) text
    if (status /= 0) exit
    line = line + 1
  end do
  print '(a,i6,l2)', 'lines', line, status < 0
  close(10)

  open(unit=11, file=trim(place)//'/records.bin', status='old', action='read', access='direct', &
       form='unformatted', recl=80)
  total = 0
  do line = 100, 1, -7
    read(11, rec=line) values(1:10)
    total = total + line * sum(values(1:10))
  end do
  print '(a,es22.14)', 'records', total
  close(11)

  open(unit=12, file=trim(place)//'/stream.bin', status='old', action='read', access='stream', &
       form='unformatted')
  read(12, pos=801) values(1:5)
  print '(5es12.4)', values(1:5)
  close(12)

  open(unit=13, file=trim(place)//'/nothing.txt', status='old', action='read', iostat=status)
  print '(a,l2)', 'refused', status /= 0
  open(unit=14, file=trim(place)//'/new.txt', status='new', action='write', iostat=status)
  print '(a,l2)', 'not written', status /= 0 .or. command_argument_count() < 2
  if (status == 0) close(14, status='delete')
  open(unit=15, status='scratch')
  write(15, *) count, total
  rewind(15)
  read(15, *) count, total
  print '(i6,es12.4)', count, total
end program deck
